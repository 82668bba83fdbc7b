package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/gitindex"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Hidden files that git tracks look deleted to a git inside, which would
// commit their deletion. So the index that the sandbox sees has their
// skip-worktree bits set. These bits are ours: they count for nothing in a
// review, and apply takes them off.

// workTreeOf returns the directory whose files the index at p is of. An index
// of a linked work tree or of a submodule's own git directory is left alone:
// its files are elsewhere.
func workTreeOf(p vpath.Path) (vpath.Path, bool) {
	if p.Base() != "index" || p.Dir().Base() != ".git" {
		return "", false
	}
	return p.Dir().Dir(), true
}

// trackedPath returns where the entry called name lies; ok is false if git
// would not check it out.
func trackedPath(root vpath.Path, name string) (p vpath.Path, ok bool) {
	if len(name) >= 2 && name[len(name)-1] == '/' {
		name = name[:len(name)-1] // a directory of a sparse index
	}
	p, err := vpath.Parse(name)
	if err != nil || p.Rel() != name || p.IsRoot() {
		return "", false
	}
	if root.IsRoot() {
		return p, true
	}
	return root + p, true
}

// IndexStandIns shows the sandbox the indexes of git repositories with the
// entries skipped that hidden reports.
func IndexStandIns(hidden func(vpath.Path) bool) *layer.StandIns {
	return &layer.StandIns{
		Wants: func(p vpath.Path) bool { _, ok := workTreeOf(p); return ok },
		Make: func(p vpath.Path, content []byte) []byte {
			root, _ := workTreeOf(p)
			x, err := gitindex.Parse(content)
			if err != nil || !skipHidden(x, root, hidden) {
				return nil
			}
			return x.Encode()
		},
		MaxBytes: gitindex.MaxBytes,
	}
}

// skipHidden sets the bits and reports whether that changed any.
func skipHidden(x *gitindex.Index, root vpath.Path, hidden func(vpath.Path) bool) bool {
	return x.Skip(func(e gitindex.Entry) bool {
		p, ok := trackedPath(root, e.Path)
		return e.SkipWorktree || ok && hidden(p)
	})
}

// takeOff takes the bits off again that hidden reports and source has not.
func takeOff(x, source *gitindex.Index, root vpath.Path, hidden func(vpath.Path) bool) bool {
	theirs := map[string]bool{}
	if source != nil {
		source.Entries(func(e gitindex.Entry) {
			if e.SkipWorktree {
				theirs[e.Path] = true
			}
		})
	}
	return x.Skip(func(e gitindex.Entry) bool {
		if !e.SkipWorktree || theirs[e.Path] {
			return e.SkipWorktree
		}
		p, ok := trackedPath(root, e.Path)
		return !ok || !hidden(p)
	})
}

// wasHidden reports whether a policy of the sandbox, the one in force or an
// earlier one, hides p.
func (w *work) wasHidden(p vpath.Path) bool {
	if isHidden(w.policy, p) {
		return true
	}
	for _, earlier := range w.earlier {
		if isHidden(earlier, p) {
			return true
		}
	}
	return false
}

// readIndex parses an index that open opens; nil if it is none or not readable.
func readIndex(open func() (*os.File, error)) *gitindex.Index {
	f, err := open()
	if err != nil {
		return nil
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, gitindex.MaxBytes+1))
	if err != nil {
		return nil
	}
	x, err := gitindex.Parse(content)
	if err != nil {
		return nil
	}
	return x
}

// sourceIndex is the index of the source at p, nil if there is none to read.
func (w *work) sourceIndex(p vpath.Path) *gitindex.Index {
	return readIndex(func() (*os.File, error) { return w.stack.OpenSource(p) })
}

// deltaIndex is the index of the delta at p without our bits, nil if there is
// none to read.
func (w *work) deltaIndex(p vpath.Path) *gitindex.Index {
	root, ok := workTreeOf(p)
	if !ok {
		return nil
	}
	x := readIndex(func() (*os.File, error) { return w.stack.OpenDelta(p) })
	if x != nil {
		takeOff(x, w.sourceIndex(p), root, w.wasHidden)
	}
	return x
}

// isSameIndex reports whether the delta's index at p says to git what the one
// that open opens does. Nothing that git derives counts, nor do our bits.
func (w *work) isSameIndex(p vpath.Path, open func() (*os.File, error)) bool {
	now := w.deltaIndex(p)
	if now == nil {
		return false
	}
	was := readIndex(open)
	return was != nil && gitindex.Same(was, now)
}

// outgoing is what apply writes of a git index of the delta that has our bits, or
// what git derived inside.
type outgoing struct {
	file *os.File // without both
	sum  string   // of the delta's file, which was reviewed, in hex
}

// outgoing returns what to write instead of the delta's file src at p; nil for
// src itself.
func (w *work) outgoing(p vpath.Path, src *os.File) (*outgoing, error) {
	root, ok := workTreeOf(p)
	if !ok {
		return nil, nil
	}
	content, err := io.ReadAll(io.LimitReader(src, gitindex.MaxBytes+1))
	if err == nil {
		_, err = src.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	x, err := gitindex.Parse(content)
	if err != nil {
		return nil, nil //nolint:nilerr // not one of ours
	}
	bits := takeOff(x, w.sourceIndex(p), root, w.wasHidden)
	if derived := x.DropDerived(); !bits && !derived {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("git index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fault.New(fault.Exhausted, "apply %s: %w", p, err)
	}
	f := os.NewFile(uintptr(fd), "git index")
	if _, err = f.Write(x.Encode()); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fault.New(fault.Exhausted, "apply %s: %w", p, err)
	}
	return &outgoing{f, hex.EncodeToString(sum[:])}, nil
}

// stageFrom writes src beside its place in the source, and sees to it that it
// is what was reviewed.
func (a *applier) stageFrom(s *step, e entry, src *os.File, l look) (*staged, error) {
	out, err := a.work.outgoing(s.Path, src)
	if err != nil {
		return nil, err
	}
	if out != nil {
		defer out.file.Close()
		file, err := e.stage(out.file, l)
		if err != nil {
			return nil, err
		}
		file.sum = out.sum
		return file, a.plan.checkSum(s, out.sum)
	}
	file, err := e.stage(src, l)
	if err != nil {
		return nil, err
	}
	return file, a.plan.checkContent(s, file)
}
