//go:build !linux

package client

import (
	"context"

	"github.com/agentfense/agentfense/internal/lib/endpoint"
)

// localServer fails: a server needs Linux. Errors: ErrUnavailable.
func localServer(context.Context, string, string) (endpoint.LocalServer, error) {
	const text = "a server runs on Linux only: name the endpoint of one: set AGENTFENSE_ENDPOINT or use WithEndpoint"
	return endpoint.LocalServer{}, failure("find server", text, ErrUnavailable)
}
