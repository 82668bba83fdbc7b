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

// ReadIndex parses the index that open opens. It returns nil if it is not a readable index.
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

// SourceIndex returns the source's index at p, or nil if there is no readable one.
func (w *Work) SourceIndex(p vpath.Path) *gitindex.Index {
	return ReadIndex(func() (*os.File, error) { return w.Stack.OpenSource(p) })
}

// DeltaIndex returns the delta's index at p without our bits, or nil if there is no
// readable one.
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

// isSameIndex reports whether the delta's index at p is equivalent to the one that open
// opens. It ignores derived data and our bits.
func (w *Work) isSameIndex(p vpath.Path, open func() (*os.File, error)) bool {
	now := w.DeltaIndex(p)
	if now == nil {
		return false
	}
	was := ReadIndex(open)
	return was != nil && gitindex.Same(was, now)
}

// outgoing is what apply writes instead of a git index of the delta that has our bits, or
// data that git derived inside.
type outgoing struct {
	File *os.File // the index without them
	Sum  string   // hash of the delta's file, which was reviewed, in hex
}

// Outgoing returns what to write instead of the delta's file src at p, or nil to write src
// itself.
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

// TakeOff clears the bits of entries for which hidden returns true and which source does
// not have set.
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

// WasHidden reports whether the present policy of the sandbox or an earlier one hides p or its
// content.
func (w *Work) WasHidden(p vpath.Path) bool {
	if w.Policy.HidesContent(p) {
		return true
	}
	for _, earlier := range w.earlier {
		if earlier.HidesContent(p) {
			return true
		}
	}
	return false
}
