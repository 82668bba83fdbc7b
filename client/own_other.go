//go:build !linux

package client

import (
	"context"

	"github.com/agentfense/agentfense/internal/endpoint"
)

// ownServer finds none: a server needs Linux, and one has to be named.
func ownServer(context.Context, string, string) (string, error) {
	_, err := endpoint.FindUsual()
	return "", failure("find server", err.Error()+" or use WithEndpoint", ErrUnavailable, err)
}
