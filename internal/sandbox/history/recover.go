package history

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Recovered is a transaction of a killed process that was rolled back, or completed.
type Recovered struct {
	Header
	Completed bool   // it had moved its branch already
	Left      []Left // paths that were not restored, because they have changed since
}

// IsPending reports whether a killed process, or one that is not done, has left a transaction. It
// takes no lock.
func (s *Source) IsPending() bool {
	names, err := s.names()
	if err != nil || len(names) == 0 {
		return false
	}
	e, err := readSummary(filepath.Join(s.dir, names[len(names)-1]))
	return err == nil && e.State == Pending
}

// Recover rolls back what a killed process has left. The caller holds the lock. Errors: those of
// record.Source.Open and of the host; the next call tries again.
func (s *Source) Recover() ([]Recovered, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	var list []Recovered
	for _, name := range slices.Backward(names) {
		dir := filepath.Join(s.dir, name)
		e, err := readSummary(dir)
		if err == nil && e.State == Pending {
			err = e.Load()
		}
		switch {
		case errors.Is(err, errNotReady):
			if err := s.remove(dir); err != nil {
				return list, err
			}
			continue
		case err != nil:
			return list, err
		case e.State != Pending:
			return list, nil // the earlier ones have ended
		}
		left, err := s.recoverOne(e)
		if err != nil {
			return list, err
		}
		list = append(list, Recovered{e.Header, e.State == Committed, left})
	}
	return list, nil
}

func (s *Source) recoverOne(e *Entry) ([]Left, error) {
	root, err := e.Source.Open()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	journal, err := os.OpenFile(filepath.Join(e.dir, journalName), os.O_WRONLY, 0)
	if err != nil {
		return nil, record.HostError("history", err)
	}
	defer journal.Close()
	// The line that ends the transaction must not follow half a line.
	if err := journal.Truncate(e.whole); err != nil {
		return nil, record.HostError("history", err)
	}
	return s.rollBack(&changes.SourceTree{Root: root, Owner: e.Owner}, e, journal)
}

// rollBack restores the source as it was before a transaction, as far as nobody has changed it
// since, and records that.
func (s *Source) rollBack(tree *changes.SourceTree, e *Entry, journal *os.File) ([]Left, error) {
	if moved, err := e.hasMoved(tree); err != nil || moved {
		if err == nil {
			err = s.complete(tree, e, journal)
		}
		return nil, err
	}
	images, err := os.Open(filepath.Join(e.dir, imagesName))
	if err != nil {
		return nil, record.HostError("history", err)
	}
	defer images.Close()
	m := &mover{tree: tree, rollback: true}
	moves := make([]move, 0, len(e.Steps))
	for i := range e.Steps {
		st := &e.Steps[i]
		at, err := st.At()
		if err != nil {
			return nil, err
		}
		moves = append(moves, move{
			path: at, from: st.After, to: st.Before, modeOnly: st.isModeOnly(),
			image: changes.Image{Dir: int(images.Fd()), Name: strconv.Itoa(i)},
		})
	}
	if err := m.run(moves); err != nil {
		return nil, record.HostError("roll back", err)
	}
	if err := syncTree(tree); err != nil {
		return nil, record.HostError("roll back", err)
	}
	if err := unlockIndex(tree, &e.Header); err != nil {
		return nil, err
	}
	failpoint.At("journal: restored")
	t := &Txn{journal: journal}
	t.add(line{End: &endLine{State: RolledBack}})
	if err := t.flush(); err != nil {
		return nil, err
	}
	e.State = RolledBack
	failpoint.At("journal: rolled back")
	if len(m.left) > 0 {
		return m.left, nil // what was there before stays with the transaction
	}
	return nil, s.remove(filepath.Join(e.dir, imagesName))
}

// syncTree makes the changes of a source durable.
func syncTree(tree *changes.SourceTree) error {
	fd, err := tree.OpenDir(vpath.Root, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}

// Rebase makes what was restored the base of the delta's entries in the open sandbox, because a
// restored file may have another ctime or inode. Call it after Recover and Rollback. Errors: those
// of w.Drop. It does nothing for nil.
func (s *Source) Rebase(w *changes.Work) error {
	if s == nil || w.Elsewhere {
		return nil
	}
	entries, err := s.Entries()
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if e.State != RolledBack || e.Sandbox != w.Sandbox.ID() || e.Mount != w.Sandbox.Mount() {
			continue
		}
		if err := e.Load(); err != nil {
			return err
		}
		if err := rebase(w, e.Steps); err != nil {
			return err
		}
		if e.Expired { // nothing of it is needed any more
			if err := s.remove(e.dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// rebase is Rebase for the steps of a transaction.
func rebase(w *changes.Work, steps []Step) error {
	bases, err := w.Stack.Bases()
	if err != nil {
		return err
	}
	var versions []changes.Version
	for i := range steps {
		s := &steps[i]
		at, err := s.At()
		if err != nil {
			return err
		}
		base, recorded := bases[at]
		if !recorded || s.Moved || s.Before == nil || s.Before.IsDir() || !s.Before.isBase(&base) {
			continue // also if the sandbox began with another version: that stays a conflict
		}
		if fresh, err := w.IsFresh(at, &base); err != nil || fresh {
			continue // as the delta expects it, or unreadable: a conflict
		}
		if now := restored(w, at, s.Before); now != nil {
			// A version that the delta cannot have, so that it drops nothing.
			versions = append(versions, changes.Version{Path: s.Path, Made: now})
		}
	}
	if len(versions) == 0 {
		return nil
	}
	_, err = w.Drop(versions)
	return err
}

// restored returns the source's entry at p as a base, if it is before.
func restored(w *changes.Work, p vpath.Path, before *Entity) (now *layer.Base) {
	_ = w.Tree.At(p, func(e changes.Entry) error { // what cannot be read stays a conflict
		st, err := e.Stat()
		if err == nil && st != nil && before.Matches(e, st) {
			now = changes.BaseOf(st)
		}
		return err
	})
	return now
}
