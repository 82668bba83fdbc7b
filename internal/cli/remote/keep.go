package remote

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
)

// Keep does nothing: no policy of a server has rules with apply: keep.
func (b *Backend) Keep(context.Context, string) ([]backend.Kept, error) { return nil, nil }
