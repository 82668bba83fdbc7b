package layer

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// tally is what a frozen layer takes of the quota that only snapshots show.
type tally struct{ bytes, count int64 }

// maxShared is how many frozen layers a stack may have that are not squashed for lack of quota.
const maxShared = 4 * maxFrozenLive

// mustShare reports whether the quota has no room for copies of what snapshots keep.
func (s *Stack) mustShare() bool {
	kept, err := s.keptLayers()
	if err != nil || len(kept) == 0 || len(s.layers) > maxShared {
		return false
	}
	q := &s.quota
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.limit.Bytes > 0 && q.exceedsLocked(q.bytes+q.contents) || q.limit.Inodes > 0 && 2*q.count > q.limit.Inodes
}

// keptLayers returns the frozen layers that snapshots keep.
func (s *Stack) keptLayers() (map[string]bool, error) {
	if s.o.Kept == nil || s.quota.files == nil {
		return nil, nil
	}
	names, err := s.o.Kept()
	if err != nil {
		return nil, err
	}
	kept := map[string]bool{}
	for _, name := range names {
		for name != "" && !kept[name] {
			kept[name] = true
			if name, err = Below(s.layerPath(name)); err != nil {
				return nil, err
			}
		}
	}
	return kept, nil
}

func (s *Stack) layerPath(name string) string { return filepath.Join(s.o.Store, name) }

// countKept counts the frozen layers that snapshots keep and that the stack does not show.
func (s *Stack) countKept() error {
	kept, err := s.keptLayers()
	if err != nil || len(kept) == 0 {
		return err
	}
	for _, l := range s.frozen() {
		delete(kept, l.name)
	}
	store, err := openStore(s.o.Store)
	if err != nil {
		return err
	}
	defer unix.Close(store)
	for name := range kept {
		if err := s.countLayer(store, name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stack) countLayer(store int, name string) error {
	l, err := openLayer(store, name)
	if err == unix.ENOENT {
		return nil // its snapshot was removed meanwhile
	}
	if err != nil {
		return err
	}
	defer l.close()
	counted := quota{ledger: &ledger{files: map[uint64]int64{}}}
	if err := walkNames(l.root, counted.found); err != nil {
		return err
	}
	contents, err := journal.ContentBytesIn(l.home)
	if err != nil {
		return err
	}
	s.quota.keep(s.layerPath(name), tally{counted.bytes + contents, counted.count})
	return nil
}

// keep counts what a layer takes that only snapshots show.
func (q *quota) keep(path string, t tally) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kept == nil {
		q.kept = map[string]tally{}
	}
	q.kept[path] = t
	q.bytes += t.bytes
	q.count += t.count
}

// dropRemovedLocked takes the layers out of the counts that exist no more, because their snapshots
// were removed. It reports whether there were any.
func (q *quota) dropRemovedLocked() (any bool) {
	for path, t := range q.kept {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			q.bytes -= t.bytes
			q.count -= t.count
			delete(q.kept, path)
			any = true
		}
	}
	return any
}

// uncount takes the files of frozen layers, which the stack no longer shows, out of the quota's
// counts, unless snapshots keep them.
func (s *Stack) uncount(frozen []*layer) error {
	if s.quota.files == nil {
		return nil
	}
	kept, err := s.keptLayers()
	if err != nil {
		return err
	}
	for _, l := range frozen {
		t := s.quota.takeOut(l)
		if kept[l.name] {
			s.quota.keep(s.layerPath(l.name), t)
		}
	}
	return nil
}

// takeOut takes the files of a frozen layer out of the counts.
func (q *quota) takeOut(l *layer) (t tally) {
	// What cannot be read stays counted until the stack is opened again.
	_ = walkNames(l.root, func(dir int, _ vpath.Path, c storedChild) error {
		stored, _ := nameenc.Entry(c.name)
		st, err := statAt(dir, stored)
		if err != nil || c.kind != nameenc.KindEntry {
			return nil
		}
		q.mu.Lock()
		bytes := q.files[st.ino]
		q.mu.Unlock()
		if q.freed(st.ino) {
			t.bytes += bytes
			t.count++
		}
		return nil
	})
	return t
}
