package cleangit

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
)

// Detached is the name that Heads has for a HEAD that is no branch.
const Detached = "HEAD"

// Heads are the refs of a sandbox's repository, as commands have left them. We read them without
// git, and follow no link.
type Heads struct {
	Current string            // the ref that is checked out; Detached if none is
	Commits map[string]string // the commit of each branch, and of a detached HEAD
	Others  map[string]string // the objects of other refs, such as stashes and tags
}

// maxHead and maxPackedRefs bound what is read, in bytes.
const (
	maxHead       = 4 << 10
	maxPackedRefs = 16 << 20
)

// Heads reads the refs. Errors: Precondition if commands have made them unreadable.
func (s Store) Heads() (*Heads, error) {
	info, err := s.Info()
	if err != nil {
		return nil, err
	}
	m, err := s.OpenMerged()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	refs, err := m.refs()
	if err != nil {
		return nil, err
	}
	text, err := m.read("HEAD", maxHead)
	if err != nil {
		return nil, err
	}
	h := &Heads{Current: Detached, Commits: map[string]string{}, Others: map[string]string{}}
	ref, id := githistory.ParseRef(text)
	if strings.HasPrefix(ref, branches) && isRefName(ref) {
		h.Current = ref
	} else if len(id) == len(info.Head) {
		h.Commits[Detached] = id
	}
	for name, id := range refs {
		switch {
		case len(id) != len(info.Head) || !isRefName(name):
		case strings.HasPrefix(name, branches):
			h.Commits[name] = id
		default:
			h.Others[name] = id
		}
	}
	return h, nil
}

// isRefName reports whether git takes a name of a ref (git-check-ref-format(1)).
func isRefName(name string) bool {
	if !strings.HasPrefix(name, "refs/") || strings.HasSuffix(name, ".") || strings.Contains(name, "@{") || strings.Contains(name, "..") || strings.ContainsAny(name, " ~^:?*[\\\x7f") {
		return false
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || strings.HasPrefix(element, ".") || strings.HasSuffix(element, ".lock") {
			return false
		}
	}
	return !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' })
}

// Merged is the repository as overlayfs shows it.
type Merged struct {
	lower *os.File
	upper *os.File // nil if nothing ran yet
}

// OpenMerged opens the repository. Close it after.
func (s Store) OpenMerged() (*Merged, error) {
	parent, err := os.Open(string(s))
	if err != nil {
		return nil, damaged(err)
	}
	defer parent.Close()
	m := &Merged{}
	if m.lower, err = OpenBelow(parent, repositoryDir); err != nil {
		return nil, damaged(err)
	}
	m.upper, err = OpenBelow(parent, upperDir)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		m.Close()
		return nil, damaged(err)
	}
	return m, nil
}

// OpenBelow opens a directory without following a link.
func OpenBelow(parent *os.File, path string) (*os.File, error) {
	fd, err := safefs.OpenDir(int(parent.Fd()), path, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// Close closes the directories.
func (m *Merged) Close() {
	m.lower.Close()
	if m.upper != nil {
		m.upper.Close()
	}
}

// Unreadable says what commands have done to the repository.
func Unreadable(what string, err error) error {
	return errdefs.New(errdefs.Precondition, "the sandbox's repository: %s: %w; repair it with a command in the sandbox", what, err)
}

// read reads a file at the top of the repository; an absent one is empty.
func (m *Merged) read(name string, limit int64) ([]byte, error) {
	from := m.lower
	if m.upper != nil {
		var st unix.Stat_t
		err := unix.Fstatat(int(m.upper.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case err == nil && IsWhiteout(&st):
			return nil, nil
		case err == nil:
			from = m.upper
		case !errors.Is(err, unix.ENOENT):
			return nil, Unreadable(name, err)
		}
	}
	text, err := safefs.ReadRegular(int(from.Fd()), name, limit)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, Unreadable(name, err)
	}
	return text, nil
}

// IsWhiteout reports whether an entry of the upper layer hides one of the lower (overlayfs.rst).
func IsWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// refs reads all refs. Those that have a file are in the upper layer, because the lower one has
// packed ones alone.
func (m *Merged) refs() (githistory.Refs, error) {
	packed, err := m.read("packed-refs", maxPackedRefs)
	if err != nil {
		return nil, err
	}
	refs := githistory.Refs{}
	refs.AddPacked(packed)
	if m.upper == nil {
		return refs, nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(m.upper.Fd()), "reftable", &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		return nil, Unreadable("reftable", errdefs.New(errdefs.Unsupported, "refs in this form are not read"))
	}
	loose, err := githistory.ReadLoose(int(m.upper.Fd()))
	if err != nil {
		return nil, Unreadable("refs", err)
	}
	maps.Copy(refs, loose)
	return refs, nil
}

// maxCommitsFile bounds the lists of commits, in bytes.
const maxCommitsFile = 256 << 20

// History returns for each commit that the repository was made with the one it was made of.
func (s Store) History() (map[string]string, error) {
	text, err := safefs.ReadRegularIn(string(s), commitsFile, maxCommitsFile)
	if err != nil {
		return nil, damaged(err)
	}
	reals := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if clean, real, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			reals[clean] = real
		}
	}
	return reals, nil
}

// Unsaved lists the refs, and a detached HEAD, with commits that would be lost with the sandbox:
// those that it was not made with and that were not brought out.
func (s Store) Unsaved() ([]string, error) {
	info, err := s.Info()
	if err != nil {
		return nil, err
	}
	h, err := s.Heads()
	if err != nil {
		return nil, err
	}
	var left []string
	for _, refs := range []map[string]string{h.Commits, h.Others} {
		for name, id := range refs {
			if id != info.Head {
				left = append(left, name)
			}
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	known, err := s.History()
	if err != nil {
		return nil, err
	}
	taken, err := s.Taken()
	if err != nil {
		return nil, err
	}
	left = slices.DeleteFunc(left, func(name string) bool {
		id := h.Commits[name]
		if id == "" {
			id = h.Others[name]
		}
		_, isOld := known[id]
		return isOld || slices.ContainsFunc(taken[id], func(b Became) bool { return !b.Undone })
	})
	if len(left) == 0 {
		return nil, nil
	}
	slices.Sort(left)
	return left, nil
}

// UpperObjects opens the directory of objects that commands have written; nil if there is none.
func (m *Merged) UpperObjects() (*os.File, error) {
	if m.upper == nil {
		return nil, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(m.upper.Fd()), "objects", &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) || err == nil && IsWhiteout(&st) {
		return nil, nil
	}
	dir, err := OpenBelow(m.upper, "objects")
	if err != nil {
		return nil, Unreadable("objects", err)
	}
	return dir, nil
}

// LowerObjects is the directory of the objects that the repository was made with.
func (m *Merged) LowerObjects() (*os.File, error) {
	dir, err := OpenBelow(m.lower, "objects")
	if err != nil {
		return nil, damaged(err)
	}
	return dir, nil
}

// Owner is the user of the processes of the sandbox.
func (s Store) Owner() (uid, gid uint32, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(string(s), repositoryDir), &st); err != nil {
		return 0, 0, damaged(err)
	}
	return st.Uid, st.Gid, nil
}
