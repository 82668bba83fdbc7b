package service

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// historyServer answers the calls of HistoryService.
type historyServer struct {
	sandboxv1.UnimplementedHistoryServiceServer
	service *Service
}

// ListTransactions lists transactions. A page token is the id of the last one of the page before.
func (h *historyServer) ListTransactions(ctx context.Context, m *sandboxv1.ListTransactionsRequest) (*sandboxv1.ListTransactionsResponse, error) {
	r, err := wireconv.DecodeListTransactions(m)
	if err != nil {
		return nil, err
	}
	var list []transaction
	if r.Sandbox != "" {
		list, err = h.service.transactionsOf(ctx, r.Sandbox)
	} else {
		list, err = h.service.transactionsIn(ctx, r.Codebase)
	}
	if err != nil {
		return nil, err
	}
	slices.Reverse(list)
	if token := r.Page.Token; token != "" {
		i := slices.IndexFunc(list, func(t transaction) bool { return t.ID == token })
		if i < 0 {
			return nil, errdefs.New(errdefs.Invalid, "page_token: no such transaction, or it is no longer stored: list from the beginning")
		}
		list = list[i+1:]
	}
	answer := &sandboxv1.ListTransactionsResponse{}
	for i := range list {
		if i == h.service.page(r.Page).Size {
			answer.NextPageToken = list[i-1].ID
			break
		}
		answer.Transactions = append(answer.Transactions, wireconv.EncodeTransaction(&list[i].Entry))
	}
	return answer, nil
}

// Undo takes an apply back.
func (h *historyServer) Undo(ctx context.Context, m *sandboxv1.UndoRequest) (*sandboxv1.Reversal, error) {
	return h.service.reverse(ctx, m, false)
}

// Redo takes an undo back.
func (h *historyServer) Redo(ctx context.Context, m *sandboxv1.UndoRequest) (*sandboxv1.Reversal, error) {
	return h.service.reverse(ctx, m, true)
}

// transaction is a transaction that the caller may see, with the history that has it.
type transaction struct {
	history.Entry
	in *history.Source
}

// transactionsWhere returns the transactions for which keep holds, the oldest first.
func (s *Service) transactionsWhere(keep func(*history.Entry) bool) ([]transaction, error) {
	sources, err := history.All(s.home)
	if err != nil {
		return nil, err
	}
	var list []transaction
	for _, in := range sources {
		entries, err := in.Entries()
		if err != nil {
			return nil, err
		}
		for i := range entries {
			if keep(&entries[i]) {
				list = append(list, transaction{entries[i], in})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b transaction) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Seq, b.Seq))
	})
	return list, nil
}

// transactionsOf returns the transactions of a sandbox of the caller. Errors: NotFound;
// Precondition if there can be none.
func (s *Service) transactionsOf(ctx context.Context, key id.Sandbox) ([]transaction, error) {
	sb, err := s.sandbox(ctx, key)
	if err != nil {
		return nil, err
	}
	list, err := s.transactionsWhere(func(e *history.Entry) bool { return e.Sandbox == key })
	if err == nil && len(list) == 0 && sb.Stored.IsUploaded() {
		return nil, noHistory(id.Codebase(sb.Record().Served.CodebaseID))
	}
	return list, err
}

// transactionsIn returns the transactions of a linked codebase of the caller. Errors: NotFound;
// Precondition if it was uploaded.
func (s *Service) transactionsIn(ctx context.Context, key id.Codebase) ([]transaction, error) {
	entry, err := s.codebase(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case entry.LinkedPath == "":
		return nil, noHistory(key)
	}
	return s.transactionsWhere(func(e *history.Entry) bool { return e.Codebase == string(key) })
}

// noHistory is the error for what has no history.
func noHistory(key id.Codebase) error {
	return errdefs.New(errdefs.Precondition, "codebase %s: it was uploaded, so the server has no history of it: only an apply to a linked codebase or to a mount can be undone", key)
}

// reverse undoes or redoes what a request names. As with Apply, conflicts are an error, except for
// a dry run, which answers with them.
func (s *Service) reverse(ctx context.Context, m *sandboxv1.UndoRequest, redo bool) (*sandboxv1.Reversal, error) {
	r, err := wireconv.DecodeUndo(m)
	if err != nil {
		return nil, err
	}
	t, err := s.toReverse(ctx, r, redo)
	if err != nil {
		return nil, err
	}
	sb, part, err := s.mayReverse(ctx, t)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	o := undo.Options{DryRun: r.DryRun, Contained: true}
	if part != nil && !r.DryRun {
		if o.Drop, err = api.DropLive(ctx, sb.Dir(), t.Mount); err != nil {
			return nil, err
		}
	}
	result, err := undo.Reverse(ctx, t.in, &t.Entry, part, o)
	if err == nil && sb != nil && !r.DryRun {
		err = s.released(ctx, sb)
	}
	if err != nil {
		if sb != nil {
			err = withoutSources(ctx, sb, err)
		}
		return nil, withConflicts(&result, err)
	}
	return wireconv.EncodeReversal(result), nil
}

// toReverse finds the transaction that a request means, among those that the caller may see.
func (s *Service) toReverse(ctx context.Context, r wireconv.Undo, redo bool) (*transaction, error) {
	if r.Sandbox != "" {
		list, err := s.transactionsOf(ctx, r.Sandbox)
		if err != nil {
			return nil, err
		}
		e, err := undo.Select(entriesOf(list), redo)
		if err != nil {
			return nil, err
		}
		return entryIn(list, e.ID), nil
	}
	named, err := s.transactionsWhere(func(e *history.Entry) bool { return e.ID == string(r.Transaction) })
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, notInHistory(r.Transaction)
	}
	if _, _, err := s.reach(ctx, &named[0].Entry); err != nil {
		return nil, err
	}
	in := named[0].in
	entries, err := in.Entries()
	if err != nil {
		return nil, err
	}
	e, err := undo.Named(entries, redo, string(r.Transaction))
	if err != nil {
		return nil, err
	}
	return &transaction{*e, in}, nil
}

func notInHistory(key id.Transaction) error {
	return errdefs.New(errdefs.NotFound, "transaction %s: not in the history", key)
}

func entriesOf(list []transaction) []history.Entry {
	entries := make([]history.Entry, len(list))
	for i, t := range list {
		entries[i] = t.Entry
	}
	return entries
}

func entryIn(list []transaction, key string) *transaction {
	return &list[slices.IndexFunc(list, func(t transaction) bool { return t.ID == key })]
}

// reach returns the sandbox of a transaction, and what of it has the changes. Both are nil if the
// sandbox is destroyed; then the codebase has to be the caller's. Errors: NotFound also for a
// transaction of another owner.
func (s *Service) reach(ctx context.Context, e *history.Entry) (sb, part *record.Sandbox, err error) {
	absent := notInHistory(id.Transaction(e.ID))
	sb, err = s.sandbox(ctx, e.Sandbox)
	switch {
	case err == nil:
		part, err = sb.InMount(e.Mount)
	case errdefs.Is(err, errdefs.NotFound) && e.Codebase != "":
		_, err = s.codebase(ctx, id.Codebase(e.Codebase))
		sb = nil
	}
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Unsupported) {
		return nil, nil, absent
	}
	return sb, part, err
}

// mayReverse is reach for a caller who changes the source. Errors: also Denied for a mount whose
// source may no longer be written.
func (s *Service) mayReverse(ctx context.Context, t *transaction) (sb, part *record.Sandbox, err error) {
	sb, part, err = s.reach(ctx, &t.Entry)
	if err == nil && part != nil {
		err = s.permitApply(part)
	}
	return sb, part, err
}

// withConflicts adds the paths that prevent an undo, as withPaths does.
func withConflicts(r *undo.Result, err error) error {
	if r.Conflicts() == 0 || !errdefs.Is(err, errdefs.Precondition) {
		return err
	}
	failure := &errdetails.PreconditionFailure{}
	left := maxDetailBytes - sentBytes(err.Error())
	for _, p := range r.Paths {
		if p.Conflict == "" {
			continue
		}
		v := &errdetails.PreconditionFailure_Violation{Type: string(apply.Conflict), Subject: p.Path.Text()}
		if left -= violationBytes(v); left < 0 {
			break
		}
		failure.Violations = append(failure.Violations, v)
	}
	return &detailed{err, failure}
}
