package changes

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"golang.org/x/sys/unix"
)

// ReadIndex parses an index that open opens; nil if it is none or not readable.
func ReadIndex(open func() (*os.File, error)) *gitindex.Index {
	f, err := open()
	if err != nil {
		return nil
	}
	defer f.Close()
	x, err := gitindex.Read(f)
	if err != nil {
		return nil
	}
	return x
}

// SourceIndex is the index of the source at p, nil if there is none to read.
func (w *Work) SourceIndex(p vpath.Path) *gitindex.Index {
	return ReadIndex(func() (*os.File, error) { return w.Stack.OpenSource(p) })
}

// DeltaIndex is the index of the delta at p without our bits, nil if there is
// none to read.
func (w *Work) DeltaIndex(p vpath.Path) *gitindex.Index {
	root, ok := gitindex.WorkTreeOf(p)
	if !ok {
		return nil
	}
	x := ReadIndex(func() (*os.File, error) { return w.Stack.OpenDelta(p) })
	if x != nil {
		TakeOff(x, w.SourceIndex(p), root, w.WasHidden)
	}
	return x
}

// isSameIndex reports whether the delta's index at p says to git what the one
// that open opens does. Nothing that git derives counts, nor do our bits.
func (w *Work) isSameIndex(p vpath.Path, open func() (*os.File, error)) bool {
	now := w.DeltaIndex(p)
	if now == nil {
		return false
	}
	was := ReadIndex(open)
	return was != nil && gitindex.Same(was, now)
}

// outgoing is what apply writes of a git index of the delta that has our bits, or
// what git derived inside.
type outgoing struct {
	File *os.File // without both
	Sum  string   // of the delta's file, which was reviewed, in hex
}

// Outgoing returns what to write instead of the delta's file src at p; nil for
// src itself.
func (w *Work) Outgoing(p vpath.Path, src *os.File) (*outgoing, error) {
	root, ok := gitindex.WorkTreeOf(p)
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
	bits := TakeOff(x, w.SourceIndex(p), root, w.WasHidden)
	if derived := x.DropDerived(); !bits && !derived {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("git index", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "apply %s: %w", p, err)
	}
	f := os.NewFile(uintptr(fd), "git index")
	if _, err = f.Write(x.Encode()); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, errdefs.New(errdefs.Exhausted, "apply %s: %w", p, err)
	}
	return &outgoing{f, hex.EncodeToString(sum[:])}, nil
}

// TakeOff takes the bits off again that hidden reports and source has not.
func TakeOff(x, source *gitindex.Index, root vpath.Path, hidden func(vpath.Path) bool) bool {
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
		p, ok := gitindex.TrackedPath(root, e.Path)
		return !ok || !hidden(p)
	})
}

// WasHidden reports whether a policy of the sandbox, the one in force or an
// earlier one, hides p.
func (w *Work) WasHidden(p vpath.Path) bool {
	if IsHidden(w.Policy, p) {
		return true
	}
	for _, earlier := range w.earlier {
		if IsHidden(earlier, p) {
			return true
		}
	}
	return false
}
