//go:build !linux

package client

import (
	"context"

	"github.com/agentfense/agentfense/internal/endpoint"
)

// ownServer is where one is usually: a server needs Linux.
func ownServer(context.Context, string, string) (string, error) { return endpoint.Usual, nil }
