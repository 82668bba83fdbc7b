package remote

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// History is not possible: the server has no call for it.
func (b *Backend) History(context.Context, string, string) ([]history.Entry, error) {
	return nil, localOnly("")
}

// Undo is not possible: the server has no call for it.
func (b *Backend) Undo(context.Context, backend.UndoOptions) (undo.Result, error) {
	return undo.Result{}, localOnly("")
}
