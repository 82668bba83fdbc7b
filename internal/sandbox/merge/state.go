package merge

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// state is an open state of a sandbox.
type state struct {
	work    *changes.Work
	changed map[vpath.Path]*changes.Change // against the source
}

// openState opens the state in the directory dir of layers; "" is the source without changes.
func openState(sb *record.Sandbox, dir string) (*state, error) {
	w, err := changes.OpenState(sb, dir)
	if err != nil {
		return nil, err
	}
	list, err := w.Changes(nil, false)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	s := &state{work: w, changed: make(map[vpath.Path]*changes.Change, len(list))}
	for i := range list {
		s.changed[list[i].Path] = &list[i]
	}
	return s, nil
}

// isChange reports whether the state changes the source at p.
func (s *state) isChange(p vpath.Path) bool {
	c := s.changed[p]
	return c != nil && c.IsListed() && c.LeftOut() == ""
}

// base returns what the state has recorded of the source at p; nil if it says nothing of p.
func (s *state) base(p vpath.Path) *layer.Base {
	if c := s.changed[p]; c != nil {
		return c.Base
	}
	return nil
}

// entry is what a state has at a path.
type entry struct {
	mode   uint32 // type and permissions; 0: nothing
	size   int64
	mtime  unix.Timespec
	target string // of a symbolic link
	sum    []byte // SHA-256 of a content or a target of which no more may be known
	text   []byte // the content of a merged file
	linked bool   // the sandbox has given the file another name
	open   func() (*os.File, error)
}

func (e *entry) isAbsent() bool  { return e.mode == 0 }
func (e *entry) isDir() bool     { return record.IsDir(e.mode) }
func (e *entry) isRegular() bool { return e.kind() == unix.S_IFREG }
func (e *entry) kind() uint32    { return e.mode & record.TypeBits }

// perm returns the permissions that count.
func (e *entry) perm() uint32 { return e.mode & changes.PermOf(e.mode) }

// at returns what the state has at p.
func (s *state) at(p vpath.Path) (*entry, error) {
	i, err := s.work.Stack.LookupStored(p)
	if isNothing(err) {
		return &entry{}, nil
	}
	if err != nil {
		return nil, err
	}
	e := &entry{mode: i.Mode &^ (unix.S_ISUID | unix.S_ISGID), size: i.Size, mtime: i.Mtime, linked: i.Nlink > 1}
	switch e.kind() {
	case unix.S_IFLNK:
		e.target, err = s.work.Stack.Readlink(p)
	case unix.S_IFREG:
		e.open = func() (*os.File, error) { return s.open(p, i.Origin) }
	}
	return e, err
}

func isNothing(err error) bool {
	return errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Precondition) // ENOTDIR
}

// open opens the regular file p. A git index is opened without what only the sandbox's view needs.
func (s *state) open(p vpath.Path, origin layer.Origin) (f *os.File, err error) {
	if origin == layer.Source {
		return s.work.Stack.OpenSource(p)
	}
	err = rights.AsOwner(func() (err error) {
		f, err = s.work.Stack.OpenDelta(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := s.work.Outgoing(p, f)
	if err != nil || out == nil {
		return f, err
	}
	f.Close()
	return out.File, nil
}

// recorded returns what the source had at a path when the state saw it.
func (s *state) recorded(at vpath.Path, b *layer.Base) *entry {
	if b == nil || b.Absent {
		return &entry{}
	}
	return &entry{
		mode: b.Mode &^ (unix.S_ISUID | unix.S_ISGID), size: b.Size, mtime: b.Mtime, sum: b.SHA256,
		open: func() (*os.File, error) { return s.openRecorded(at, b) },
	}
}

// openRecorded opens the content that b recorded: the one that was kept, or that of the source if
// it has not changed.
func (s *state) openRecorded(at vpath.Path, b *layer.Base) (*os.File, error) {
	f, err := s.work.Stack.BaseContent(b)
	if !errdefs.Is(err, errdefs.NotFound) {
		return f, err
	}
	if fresh, freshErr := s.work.IsFresh(at, b); freshErr != nil || !fresh {
		return nil, err
	}
	return s.work.Stack.OpenSource(at)
}

// digest returns the SHA-256 of the content or the target, nil if it is not known.
func (e *entry) digest() ([]byte, error) {
	if e.sum != nil {
		return e.sum, nil
	}
	switch {
	case e.kind() == unix.S_IFLNK && e.target != "":
		sum := sha256.Sum256([]byte(e.target))
		e.sum = sum[:]
	case e.isRegular():
		f, err := e.open()
		if errdefs.Is(err, errdefs.NotFound) {
			return nil, nil // no content was kept
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return nil, errdefs.New(record.DiskKind(err), "merge: %w", err)
		}
		e.sum = h.Sum(nil)
	}
	return e.sum, nil
}

// hasContentOf reports whether both entries have one type and one content. What is not known
// differs.
func (e *entry) hasContentOf(o *entry) (bool, error) {
	switch {
	case e.kind() != o.kind():
		return false, nil
	case e.kind() == unix.S_IFREG && e.size != o.size:
		return false, nil
	case e.kind() != unix.S_IFREG && e.kind() != unix.S_IFLNK:
		return true, nil
	}
	x, err := e.digest()
	if err != nil || x == nil {
		return false, err
	}
	y, err := o.digest()
	return bytes.Equal(x, y), err
}

// isSame reports whether both entries have one type, one content and the same permissions.
func (e *entry) isSame(o *entry) (bool, error) {
	same, err := e.hasContentOf(o)
	return same && e.perm() == o.perm(), err
}

// read reads a regular file of at most limit bytes; known is false for a larger one, and for one of
// which the content was not kept.
func (e *entry) read(limit int64) (text []byte, known bool, err error) {
	if e.isAbsent() {
		return nil, true, nil
	}
	f, err := e.open()
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, false, errdefs.New(record.DiskKind(err), "merge: %w", err)
	}
	return text, int64(len(text)) <= limit, nil
}

// older returns which of two records of one path is of the earlier state of the source, and the
// state that has it. One that says nothing was there counts as older.
func older(a *state, ofA *layer.Base, b *state, ofB *layer.Base) (*state, *layer.Base) {
	switch {
	case ofA == nil:
		return b, ofB
	case ofB == nil || ofA.Absent:
		return a, ofA
	case ofB.Absent || isBefore(ofB.Ctime, ofA.Ctime):
		return b, ofB
	}
	return a, ofA
}

func isBefore(a, b unix.Timespec) bool {
	return a.Sec < b.Sec || a.Sec == b.Sec && a.Nsec < b.Nsec
}
