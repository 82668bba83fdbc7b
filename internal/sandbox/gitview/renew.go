package gitview

import (
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// RenewIndex brings the delta's index of the repository at the root up to date
// before the sandbox starts: hidden reports what it is not shown now, wasHidden
// what it was not shown before. An index that says what the source's did goes
// if the source's has changed since. The caller has the stack for itself.
func RenewIndex(s *layer.Stack, hidden, wasHidden func(vpath.Path) bool) error {
	untouched, err := s.IsUntouched()
	if err != nil || untouched {
		return err
	}
	const index vpath.Path = "/.git/index"
	info, err := s.Lookup(index)
	if err != nil || info.Origin == layer.Source {
		return nil //nolint:nilerr // there is none
	}
	r := indexRenewal{s, index, hidden, wasHidden}
	return r.run()
}

type indexRenewal struct {
	stack             *layer.Stack
	path              vpath.Path
	hidden, wasHidden func(vpath.Path) bool
}

func (r *indexRenewal) run() error {
	root, _ := gitindex.WorkTreeOf(r.path)
	x := changes.ReadIndex(func() (*os.File, error) { return r.stack.OpenDelta(r.path) })
	if x == nil {
		return nil
	}
	source := changes.ReadIndex(func() (*os.File, error) { return r.stack.OpenSource(r.path) })
	changed := changes.TakeOff(x, source, root, func(p vpath.Path) bool { return r.wasHidden(p) && !r.hidden(p) })
	changed = skipHidden(x, root, r.hidden) || changed
	if stale, err := r.isStale(x, root); err != nil || stale {
		if err == nil {
			err = r.stack.Drop(r.path)
		}
		return err
	}
	if !changed {
		return nil
	}
	return r.write(x.Encode())
}

// isStale reports whether x says what the source's index said when the sandbox
// took it, and the source's is another by now.
func (r *indexRenewal) isStale(x *gitindex.Index, root vpath.Path) (bool, error) {
	bases, err := r.stack.Bases()
	if err != nil {
		return false, err
	}
	base, known := bases[r.path]
	if !known || base.Absent {
		return false, nil
	}
	was := changes.ReadIndex(func() (*os.File, error) { return r.stack.BaseContent(&base) })
	if was == nil {
		return false, nil
	}
	skipHidden(was, root, r.hidden)
	if !gitindex.Same(was, x) {
		return false, nil
	}
	matches, err := r.stack.SourceMatches(r.path, &base)
	if errdefs.Is(err, errdefs.Denied) {
		return false, nil
	}
	return !matches, err
}

// write replaces the index as git does: by its lock, which also keeps us away
// from one that git was writing. The time stays, by which git tells which files
// may have changed since.
func (r *indexRenewal) write(content []byte) error {
	info, err := r.stack.Lookup(r.path)
	if err != nil {
		return err
	}
	lock := r.path + ".lock"
	f, _, err := r.stack.Create(lock, info.Mode&record.PermBits)
	if errdefs.Is(err, errdefs.Exists) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	f.Close()
	if err == nil {
		_, err = r.stack.SetAttr(lock, layer.SetAttr{Mtime: &info.Mtime})
	}
	if err == nil {
		_, err = r.stack.Rename(lock, r.path, layer.RenameOptions{})
	}
	if err != nil {
		_, _ = r.stack.Unlink(lock, false)
	}
	return err
}
