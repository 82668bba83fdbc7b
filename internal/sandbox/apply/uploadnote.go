package apply

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// note records the results of an apply in the directory as what the sandbox saw. It records
// nothing where the result is unknown, which is a conflict later.
func note(u *uploaded.Directory, versions []changes.Version, sums map[vpath.Path]sum) (err error) {
	if len(versions) == 0 {
		return nil
	}
	source, err := u.Source().Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	tree := changes.SourceTree{Root: source, Owner: u.Sandbox.ID()}
	for _, v := range versions {
		p, err := v.At()
		if err != nil {
			return err
		}
		made := v.Made
		if made == nil && !v.Deleted {
			made = baseOfSame(&tree, p, sums[p])
		}
		u.SetIndex(p, indexOf(&tree, p, made))
		u.SetBase(p, made)
	}
	return u.Store()
}

// indexOf returns the sum of the git index at p, or nil if it is not an index or the apply
// did not make it.
func indexOf(t *changes.SourceTree, p vpath.Path, made *layer.Base) (sum []byte) {
	if _, is := gitindex.WorkTreeOf(p); !is || made == nil {
		return nil
	}
	_ = t.At(p, func(e changes.Entry) error { // an unreadable entry is unknown
		said, now := sourceIndexNow(func() (*os.File, error) {
			fd, err := safefs.Open(e.Dir, e.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
			if err != nil {
				return nil, err
			}
			return os.NewFile(uintptr(fd), e.Name), nil
		})
		if now != nil && now.Ino == made.Ino && now.Dev == made.Dev && now.Size == made.Size && now.Mtime == made.Mtime {
			sum = said
		}
		return nil
	})
	return sum
}

// sourceIndexNow returns the sum and the base of the git index that open opens, both nil if
// it cannot be read or changes meanwhile.
func sourceIndexNow(open func() (*os.File, error)) (sum []byte, base *layer.Base) {
	f, err := open()
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	var before, after unix.Stat_t
	if unix.Fstat(int(f.Fd()), &before) != nil || before.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, nil
	}
	x, err := gitindex.Read(f)
	if err != nil || unix.Fstat(int(f.Fd()), &after) != nil || !changes.IsVersion(&before, &after) {
		return nil, nil
	}
	of := x.Sum()
	return of[:], changes.BaseOf(&after)
}

// baseOfSame returns the base of the entry at p if it is a directory, or a file with that
// sum, else nil.
func baseOfSame(t *changes.SourceTree, p vpath.Path, want sum) (base *layer.Base) {
	_ = t.At(p, func(e changes.Entry) error { // an unreadable entry is unknown
		st, err := e.Stat()
		if err != nil || st == nil {
			return err
		}
		b := changes.BaseOf(st)
		b.SHA256 = want[:]
		if record.IsDir(st.Mode) || changes.HasBaseContent(b, e.Dir, e.Name, st) {
			if now, err := e.Stat(); err == nil && now != nil && (record.IsDir(st.Mode) || changes.IsVersion(st, now)) {
				base = changes.BaseOf(st)
			}
		}
		return nil
	})
	return base
}
