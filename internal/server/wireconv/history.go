package wireconv

import (
	"cmp"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// ListTransactions asks for the transactions of a sandbox, or of a codebase. The other one is "".
type ListTransactions struct {
	Sandbox  id.Sandbox
	Codebase id.Codebase
	Page     Page
}

// DecodeListTransactions reads a request.
func DecodeListTransactions(r *sandboxv1.ListTransactionsRequest) (l ListTransactions, err error) {
	switch {
	case (r.GetSandboxId() == "") == (r.GetCodebaseId() == ""):
		return l, errdefs.New(errdefs.Invalid, "sandbox_id, codebase_id: exactly one is required")
	case r.GetSandboxId() != "":
		l.Sandbox, err = SandboxID(r)
	default:
		l.Codebase, err = CodebaseID(r)
	}
	page, pageErr := requestPage(r)
	l.Page = page
	return l, cmp.Or(err, pageErr)
}

// IsCodebaseID reports whether a name has the form of the id of a codebase.
func IsCodebaseID(name string) bool {
	_, err := id.ParseCodebase(name)
	return err == nil
}

// Undo asks for a transaction to be reversed: the one with the id, or the last one of the sandbox.
type Undo struct {
	Transaction id.Transaction
	Sandbox     id.Sandbox
	DryRun      bool
}

// DecodeUndo reads a request.
func DecodeUndo(r *sandboxv1.UndoRequest) (u Undo, err error) {
	u = Undo{Transaction: id.Transaction(r.GetTransactionId()), DryRun: r.GetDryRun()}
	switch {
	case (r.GetSandboxId() == "") == (u.Transaction == ""):
		return u, errdefs.New(errdefs.Invalid, "transaction_id, sandbox_id: exactly one is required")
	case u.Transaction == "":
		u.Sandbox, err = SandboxID(r)
	case !u.Transaction.IsValid():
		err = errdefs.New(errdefs.NotFound, "transaction %s: not in the history", vpath.Escape(string(u.Transaction)))
	}
	return u, err
}

// EncodeTransaction returns a transaction, without the paths of the host.
func EncodeTransaction(e *history.Entry) *sandboxv1.Transaction {
	return &sandboxv1.Transaction{
		Id: e.ID, Kind: TransactionKind.Encode(e.Kind), State: TransactionState.Encode(e.State), Reverses: e.Of, ReversedBy: e.ReversedBy,
		Expired: e.Expired, Time: encodeTime(e.Time), SandboxId: string(e.Sandbox), SandboxName: e.Name, Mount: e.Mount, CodebaseId: e.Codebase,
		PathCount: int64(e.Count), ImageBytes: e.Bytes, Branch: encodeBranchMove(e.Branch),
	}
}

func encodeBranchMove(b *history.BranchMove) *sandboxv1.BranchMove {
	if b == nil {
		return nil
	}
	return &sandboxv1.BranchMove{Branch: vpath.EncodeText(b.Name()), FromCommit: b.From, ToCommit: b.To}
}

func decodeBranchMove(m *sandboxv1.BranchMove) *history.BranchMove {
	if m == nil {
		return nil
	}
	return &history.BranchMove{
		Ref: history.BranchRef(vpath.DecodeText(m.GetBranch())), From: vpath.Escape(m.GetFromCommit()), To: vpath.Escape(m.GetToCommit()),
	}
}

// DecodeTransaction is the reverse of EncodeTransaction.
func DecodeTransaction(m *sandboxv1.Transaction) history.Entry {
	return history.Entry{
		Header: history.Header{
			ID: m.GetId(), Kind: TransactionKind.Decode(m.GetKind()), Of: m.GetReverses(), Time: decodeTime(m.GetTime()),
			Sandbox: record.ID(m.GetSandboxId()), Name: m.GetSandboxName(), Mount: m.GetMount(), Codebase: m.GetCodebaseId(),
			Branch: decodeBranchMove(m.GetBranch()),
		},
		State: TransactionState.Decode(m.GetState()), Count: int(m.GetPathCount()), ReversedBy: m.GetReversedBy(),
		Bytes: m.GetImageBytes(), Expired: m.GetExpired(),
	}
}

// EncodeReversal returns the result of an undo or a redo; paths that prevent it come first.
func EncodeReversal(r undo.Result) *sandboxv1.Reversal {
	paths := r.Listed()
	slices.SortStableFunc(paths, func(a, b undo.Path) int {
		return cmp.Compare(min(len(b.Conflict), 1), min(len(a.Conflict), 1))
	})
	m := &sandboxv1.Reversal{
		Of: EncodeTransaction(&r.Of), Kind: TransactionKind.Encode(r.Kind), TransactionId: r.ID, GivenBack: r.GivenBack,
		PathCount: int64(len(paths)), ConflictCount: int64(r.Conflicts()),
	}
	for _, p := range paths[:min(len(paths), maxPaths)] {
		m.Paths = append(m.Paths, &sandboxv1.ReversedPath{Path: p.Path.Text(), Status: ChangeStatus.Encode(p.Status), Conflict: p.Conflict})
	}
	return m
}

// DecodeReversal is the reverse of EncodeReversal. Errors: Internal for an invalid path.
func DecodeReversal(m *sandboxv1.Reversal) (r undo.Result, err error) {
	r = undo.Result{Of: DecodeTransaction(m.GetOf()), Kind: TransactionKind.Decode(m.GetKind()), ID: m.GetTransactionId(), GivenBack: m.GetGivenBack()}
	for _, p := range m.GetPaths() {
		path, err := decodePath(p.GetPath())
		if err != nil {
			return r, err
		}
		r.Paths = append(r.Paths, undo.Path{Path: path, Status: ChangeStatus.Decode(p.GetStatus()), Conflict: vpath.EscapeMessage(p.GetConflict())})
	}
	slices.SortStableFunc(r.Paths, func(a, b undo.Path) int { return cmp.Compare(a.Path, b.Path) })
	return r, nil
}
