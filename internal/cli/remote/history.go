package remote

import (
	"context"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// History lists the transactions of a sandbox or of a linked codebase. A directory of this host
// names neither: without a name the error is Invalid.
func (b *Backend) History(ctx context.Context, name, _ string) ([]history.Entry, error) {
	if name == "" {
		return nil, errdefs.New(errdefs.Invalid, "on a server: give the name of the sandbox, or the id of a linked codebase")
	}
	r := &sandboxv1.ListTransactionsRequest{}
	if wireconv.IsCodebaseID(name) {
		r.CodebaseId = name
	} else {
		sb, err := b.Sandbox(ctx, name)
		if err != nil {
			return nil, err
		}
		r.SandboxId = string(sb.Record.ID)
	}
	var list []history.Entry
	for {
		page, err := b.history.ListTransactions(ctx, r)
		if err != nil {
			return nil, b.failed(err)
		}
		for _, t := range page.Transactions {
			list = append(list, wireconv.DecodeTransaction(t))
		}
		if r.PageToken, err = stream.NextPage(r.PageToken, page.NextPageToken); err != nil {
			return nil, err
		}
		if r.PageToken == "" {
			slices.Reverse(list)
			return list, nil
		}
	}
}

// Undo reverses a transaction.
func (b *Backend) Undo(ctx context.Context, o backend.UndoOptions) (undo.Result, error) {
	r := &sandboxv1.UndoRequest{TransactionId: o.ID, DryRun: o.DryRun}
	switch {
	case o.ID == "" && o.Name == "":
		return undo.Result{}, errdefs.New(errdefs.Invalid, "on a server: give the name of the sandbox, or the id of the transaction")
	case o.ID == "":
		sb, err := b.Sandbox(ctx, o.Name)
		if err != nil {
			return undo.Result{}, err
		}
		r.SandboxId = string(sb.Record.ID)
	}
	result, err := b.reverse(ctx, r, o.Redo)
	if r.DryRun || !errdefs.Is(err, errdefs.Precondition) {
		return result, err
	}
	r.DryRun = true
	if plan, dryErr := b.reverse(ctx, r, o.Redo); dryErr == nil && plan.Conflicts() > 0 {
		return plan, err
	}
	return result, err
}

func (b *Backend) reverse(ctx context.Context, r *sandboxv1.UndoRequest, redo bool) (undo.Result, error) {
	call := b.history.Undo
	if redo {
		call = b.history.Redo
	}
	answer, err := call(ctx, r)
	if err != nil {
		return undo.Result{}, b.failed(err)
	}
	return wireconv.DecodeReversal(answer)
}
