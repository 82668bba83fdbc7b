//go:build !linux

package localserver

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/endpoint"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Find fails: a server needs Linux. Errors: Unavailable.
func Find(context.Context, string, string) (endpoint.LocalServer, error) {
	const text = "a server runs only on Linux: set AGENTFENSE_ENDPOINT or use WithEndpoint"
	return endpoint.LocalServer{}, errdefs.New(errdefs.Unavailable, text)
}
