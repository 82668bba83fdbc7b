package local

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

// History lists transactions.
func (b *Backend) History(_ context.Context, name, dir string) ([]history.Entry, error) {
	found, err := b.transactions(name, dir)
	if err != nil {
		return nil, err
	}
	list := make([]history.Entry, len(found))
	for i, t := range found {
		list[i] = t.Entry
	}
	return list, nil
}

// transaction is a transaction with the history that has it.
type transaction struct {
	history.Entry
	in *history.Source
}

// transactions returns the transactions of the sandbox with a name, or of the source that is, or
// contains, dir, the oldest first.
func (b *Backend) transactions(name, dir string) ([]transaction, error) {
	sources, err := history.All(b.home)
	if err != nil {
		return nil, err
	}
	if name == "" {
		sources = nearestAbove(sources, dir)
	}
	var list []transaction
	for _, h := range sources {
		entries, err := h.Entries()
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name == "" || e.Name == name || string(e.Sandbox) == name {
				list = append(list, transaction{e, h})
			}
		}
	}
	if name != "" && len(list) == 0 {
		if _, err := b.open(name); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(x, y transaction) int { return cmp.Or(x.Time.Compare(y.Time), cmp.Compare(x.Seq, y.Seq)) })
	return list, nil
}

// nearestAbove returns the sources with the longest path that is, or contains, dir. Several
// directories can have been at one path.
func nearestAbove(sources []*history.Source, dir string) []*history.Source {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for ; ; dir = filepath.Dir(dir) {
		var at []*history.Source
		for _, h := range sources {
			if string(h.Path()) == dir {
				at = append(at, h)
			}
		}
		if len(at) > 0 || dir == "/" {
			return at
		}
	}
}

// Undo reverses a transaction.
func (b *Backend) Undo(ctx context.Context, o backend.UndoOptions) (undo.Result, error) {
	t, err := b.toReverse(o)
	if err != nil {
		return undo.Result{}, err
	}
	options := undo.Options{DryRun: o.DryRun, Waiting: o.Waiting, Recovered: o.Recovered}
	sb, err := b.sandboxOf(&t.Entry)
	if err == nil && sb != nil && !o.DryRun {
		if err = b.asOwner(ctx, sb, o.Again); err == nil {
			options.Drop, err = api.DropLive(ctx, sb.Dir(), sb.Mount())
		}
	}
	if err != nil {
		return undo.Result{}, err
	}
	return undo.Reverse(ctx, t.in, &t.Entry, sb, options)
}

// toReverse finds the transaction to reverse.
func (b *Backend) toReverse(o backend.UndoOptions) (*transaction, error) {
	if o.ID != "" {
		sources, err := history.All(b.home)
		if err != nil {
			return nil, err
		}
		for _, h := range sources {
			entries, err := h.Entries()
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(entries, func(e history.Entry) bool { return e.ID == o.ID }) {
				continue
			}
			e, err := undo.Named(entries, o.Redo, o.ID)
			if err != nil {
				return nil, err
			}
			return &transaction{*e, h}, nil
		}
		return nil, errdefs.New(errdefs.NotFound, "transaction %s: not in the history", vpath.Escape(o.ID))
	}
	list, err := b.transactions(o.Name, o.Dir)
	if err != nil {
		return nil, err
	}
	entries := make([]history.Entry, len(list))
	for i, t := range list {
		entries[i] = t.Entry
	}
	if len(entries) == 0 && o.Name == "" {
		kind := history.Undo
		if o.Redo {
			kind = history.Redo
		}
		return nil, errdefs.New(errdefs.NotFound, "%s: nothing was applied to %s or to a directory above it", kind, vpath.Escape(o.Dir))
	}
	e, err := undo.Select(entries, o.Redo)
	if err != nil {
		return nil, err
	}
	return &list[slices.IndexFunc(list, func(t transaction) bool { return t.ID == e.ID })], nil
}

// sandboxOf returns the sandbox of which the changes of a transaction are, or nil if it is removed.
func (b *Backend) sandboxOf(e *history.Entry) (*record.Sandbox, error) {
	sb, err := b.home.Open(e.Name)
	switch {
	case errdefs.Is(err, errdefs.NotFound), err == nil && sb.ID() != e.Sandbox:
		return nil, nil
	case err != nil:
		return nil, err
	}
	part, err := sb.InMount(e.Mount)
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Unsupported) {
		return nil, nil // the mount is removed
	}
	return part, err
}
