package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// TransactionKind is what a transaction is.
type TransactionKind string

// The kinds of transactions.
const (
	TransactionApply TransactionKind = "apply"
	TransactionKeep  TransactionKind = "keep" // an apply by rules with Keep
	TransactionUndo  TransactionKind = "undo"
	TransactionRedo  TransactionKind = "redo"
)

// TransactionState is how a transaction ended.
type TransactionState string

// The states of transactions.
const (
	TransactionPending    TransactionState = "pending" // not ended, or its process was killed
	TransactionCommitted  TransactionState = "committed"
	TransactionRolledBack TransactionState = "rolled_back" // the source is as before
)

// Transaction is an apply to a linked directory or to the source of a mount, or its undo.
type Transaction struct {
	ID         string
	Kind       TransactionKind
	State      TransactionState
	Reverses   string // the transaction that this one reverses, or ""
	ReversedBy string // the transaction that reverses this one, or ""
	Expired    bool   // it can no longer be reversed
	Time       time.Time
	// The sandbox of which the changes are. It may be destroyed.
	SandboxID, SandboxName string
	Mount                  string // to which they were applied; "" for the codebase
	CodebaseID             string // the linked codebase to which they were applied, or ""
	PathCount              int64
	ImageBytes             int64 // size of the stored previous versions
	// Branch is the branch that was moved along, of commits that were applied to the branch that is
	// checked out; else nil.
	Branch *BranchMove
}

// BranchMove is a branch of the source's repository that was moved from one commit to another.
type BranchMove struct{ Branch, FromCommit, ToCommit string }

func branchMoveFrom(m *sandboxv1.BranchMove) *BranchMove {
	if m == nil {
		return nil
	}
	return &BranchMove{vpath.DecodeText(m.GetBranch()), m.GetFromCommit(), m.GetToCommit()}
}

func transactionFrom(m *sandboxv1.Transaction) Transaction {
	return Transaction{
		ID: m.GetId(), Kind: TransactionKind(word("TRANSACTION_KIND_", m.GetKind())), State: TransactionState(word("TRANSACTION_STATE_", m.GetState())),
		Reverses: m.GetReverses(), ReversedBy: m.GetReversedBy(), Expired: m.GetExpired(), Time: m.GetTime().AsTime(),
		SandboxID: m.GetSandboxId(), SandboxName: m.GetSandboxName(), Mount: m.GetMount(), CodebaseID: m.GetCodebaseId(),
		PathCount: m.GetPathCount(), ImageBytes: m.GetImageBytes(), Branch: branchMoveFrom(m.GetBranch()),
	}
}

// Reversal is what Undo or Redo did, or would do.
type Reversal struct {
	Of            Transaction     // that is reversed
	Kind          TransactionKind // TransactionUndo or TransactionRedo
	TransactionID string          // that reverses it; "" in a dry run
	Paths         []ReversedPath  // those with a Conflict first; the list may be cut
	PathCount     int64           // number of all paths
	ConflictCount int64           // number of paths that prevent it
	GivenBack     bool            // the sandbox has the undone changes again
}

// ReversedPath is a path that Undo or Redo changes, or would change.
type ReversedPath struct {
	Path     string
	Status   ChangeStatus // how the source changes
	Conflict string       // why the path prevents it; "" if it does not
}

// History returns the transactions of the sandbox, the latest first. Errors: ErrPrecondition if its
// files were uploaded.
func (s *Sandbox) History(ctx context.Context) iter.Seq2[Transaction, error] {
	return s.c.transactions(ctx, &sandboxv1.ListTransactionsRequest{SandboxId: s.ID})
}

// History returns the transactions of a linked codebase, also those of destroyed sandboxes, the
// latest first. Errors: ErrNotFound; ErrPrecondition for an uploaded codebase.
func (c *Client) History(ctx context.Context, codebaseID string) iter.Seq2[Transaction, error] {
	return c.transactions(ctx, &sandboxv1.ListTransactionsRequest{CodebaseId: codebaseID})
}

func (c *Client) transactions(ctx context.Context, r *sandboxv1.ListTransactionsRequest) iter.Seq2[Transaction, error] {
	return pages(func(token string) ([]*sandboxv1.Transaction, string, error) {
		r.PageToken = token
		page, err := c.history.ListTransactions(ctx, r)
		return page.GetTransactions(), page.GetNextPageToken(), c.fail(ctx, "history", err)
	}, transactionFrom)
}

// Undo takes the last apply of the sandbox back: the source gets what it had before. The sandbox
// has the changes again if it does not run. Errors: ErrConflict if a path has changed since, and
// then nothing is changed; ErrNotFound if nothing was applied; ErrPrecondition if the files were
// uploaded; ErrDenied without the scope apply.
func (s *Sandbox) Undo(ctx context.Context) (*Reversal, error) {
	return s.c.reverse(ctx, "undo", s.c.history.Undo, &sandboxv1.UndoRequest{SandboxId: s.ID})
}

// Redo takes the last undo of the sandbox back. Errors: those of Undo.
func (s *Sandbox) Redo(ctx context.Context) (*Reversal, error) {
	return s.c.reverse(ctx, "redo", s.c.history.Redo, &sandboxv1.UndoRequest{SandboxId: s.ID})
}

// UndoDryRun returns what Undo would do, with the paths that prevent it, and changes nothing.
func (s *Sandbox) UndoDryRun(ctx context.Context) (*Reversal, error) {
	return s.c.reverse(ctx, "undo", s.c.history.Undo, &sandboxv1.UndoRequest{SandboxId: s.ID, DryRun: true})
}

// Undo is Sandbox.Undo of a transaction. It also works if the sandbox of a linked codebase is
// destroyed.
func (c *Client) Undo(ctx context.Context, transactionID string) (*Reversal, error) {
	return c.reverse(ctx, "undo", c.history.Undo, &sandboxv1.UndoRequest{TransactionId: transactionID})
}

// Redo takes the undo of a transaction back. Errors: those of Sandbox.Undo.
func (c *Client) Redo(ctx context.Context, transactionID string) (*Reversal, error) {
	return c.reverse(ctx, "redo", c.history.Redo, &sandboxv1.UndoRequest{TransactionId: transactionID})
}

// reversing is the call of Undo or Redo.
type reversing func(context.Context, *sandboxv1.UndoRequest, ...grpc.CallOption) (*sandboxv1.Reversal, error)

func (c *Client) reverse(ctx context.Context, operation string, call reversing, r *sandboxv1.UndoRequest) (*Reversal, error) {
	got, err := call(ctx, r)
	if err != nil {
		return nil, c.fail(ctx, operation, err)
	}
	result := &Reversal{
		Of: transactionFrom(got.Of), Kind: TransactionKind(word("TRANSACTION_KIND_", got.Kind)), TransactionID: got.TransactionId,
		PathCount: got.PathCount, ConflictCount: got.ConflictCount, GivenBack: got.GivenBack,
	}
	for _, p := range got.Paths {
		result.Paths = append(result.Paths, ReversedPath{vpath.DecodeText(p.Path), ChangeStatus(word("CHANGE_STATUS_", p.Status)), p.Conflict})
	}
	return result, nil
}
