package gitview

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// maxTracked is how many paths Tracked lists.
const maxTracked = 1000

// Tracked says what a policy hides, or shows with another content, although git keeps its
// content, which is readable with git's objects.
type Tracked struct {
	Index   []vpath.Path // tracked now
	History []vpath.Path // in a commit, and not tracked now
	// Unchecked says why there may be more; "" if all was looked at.
	Unchecked string
}

// IsZero reports whether there is nothing to say.
func (t *Tracked) IsZero() bool {
	return len(t.Index) == 0 && len(t.History) == 0 && t.Unchecked == ""
}

// gitLook is a look at the repository of a source.
type gitLook struct {
	policy *policy.Policy
	dir    *os.File // .git
	found  Tracked
	known  map[vpath.Path]bool
}

// LookAtGit looks for what p hides and the git repository at the root of the
// source dir has in its index, or in the history of its refs. The look at the
// history ends with ctx, and is left out where isKnown says that its answer to
// this key is known. It returns nothing where the policy hides nothing, or the
// objects themselves. Nothing of the repository is run, and no configuration of
// it is read.
func LookAtGit(ctx context.Context, dir *os.File, p *policy.Policy, isKnown func(key string) bool) Tracked {
	if !readsObjects(p) || showsAll(p) {
		return Tracked{}
	}
	fd, err := safefs.OpenDir(int(dir.Fd()), ".git", unix.O_RDONLY|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return Tracked{} // none, or one whose objects are elsewhere
	case err != nil:
		return Tracked{Unchecked: fmt.Sprintf(".git: %v", err)}
	}
	l := gitLook{policy: p, dir: os.NewFile(uintptr(fd), ".git"), known: map[vpath.Path]bool{}}
	defer l.dir.Close()
	err = l.index()
	if past := l.history(ctx, isKnown); err == nil {
		err = past
	}
	if err != nil {
		l.found.Unchecked = err.Error()
	}
	slices.Sort(l.found.Index)
	slices.Sort(l.found.History)
	return l.found
}

// readsObjects reports whether p lets the objects of the repository be read.
func readsObjects(p *policy.Policy) bool {
	for _, path := range []vpath.Path{"/.git/objects/00/0", "/.git/objects/pack/pack-0.pack"} {
		if p.Decide(path).Permission >= policy.Read {
			return true
		}
	}
	return false
}

// showsAll reports whether p hides nothing, as far as it can be told at once.
func showsAll(p *policy.Policy) bool {
	return !p.HasTransforms() && !slices.ContainsFunc(p.Rules(), func(r policy.Rule) bool { return r.Permission == policy.None }) &&
		p.Decide("/agentfense: a name that no rule spells").Permission >= policy.View
}

// note adds a path of the repository to list if the policy hides its content, and
// reports whether there is room for more.
func (l *gitLook) note(list *[]vpath.Path, name string) bool {
	p, ok := gitindex.TrackedPath(vpath.Root, name)
	if !ok || l.known[p] || !l.policy.HidesContent(p) {
		return true
	}
	l.known[p] = true
	*list = append(*list, p)
	return len(*list) < maxTracked
}

func (l *gitLook) index() error {
	content, err := safefs.ReadRegular(int(l.dir.Fd()), "index", gitindex.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("git index: %w", err)
	}
	x, err := gitindex.Parse(content)
	if err != nil {
		return err
	}
	full := false
	x.Entries(func(e gitindex.Entry) { full = full || !l.note(&l.found.Index, e.Path) })
	return nil
}

func (l *gitLook) history(ctx context.Context, isKnown func(key string) bool) error {
	dir := int(l.dir.Fd())
	refs, err := githistory.ReadRefs(dir)
	if err != nil {
		return err
	}
	tips := refs.Tips()
	if len(tips) == 0 || isKnown(l.key(tips)) {
		return nil
	}
	shallow, err := githistory.ReadShallow(dir)
	if err != nil {
		return err
	}
	fd, err := safefs.OpenDir(dir, "objects", unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return fmt.Errorf(".git/objects: %w", err)
	}
	objects := os.NewFile(uintptr(fd), "objects")
	defer objects.Close()
	return githistory.Paths(ctx, githistory.Objects{objects}, tips, shallow, func(name string) bool {
		return l.note(&l.found.History, name)
	})
}

// key stands for what the answer depends on: the tips and the rules.
func (l *gitLook) key(tips []string) string {
	h := sha256.New()
	for _, tip := range tips {
		fmt.Fprintln(h, tip)
	}
	for _, r := range l.policy.Rules() {
		fmt.Fprintf(h, "%q %d %d %d %d %s\n", r.Pattern, r.Type, r.Permission, r.Priority, r.Origin, r.Transform)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// gitSeenFile keeps the key of the history that was looked at last.
const gitSeenFile = "git-seen"

// LookAtSandbox is LookAtGit of the sandbox's source and policy. What it said of a
// history, it says once: seen is to be called when that has been told.
func LookAtSandbox(ctx context.Context, s *record.Sandbox) (found Tracked, seen func() error, err error) {
	if s.Stored.Git.IsClean() { // it shows no object of the source
		return Tracked{}, func() error { return nil }, nil
	}
	w := &changes.Work{Sandbox: s}
	if err := w.Compile(s.Stored.Source); err != nil {
		return Tracked{}, nil, err
	}
	source, err := s.Stored.Source.Open()
	if err != nil {
		return Tracked{}, nil, err
	}
	defer source.Close()
	key := ""
	found = LookAtGit(ctx, source, w.Policy, func(k string) bool {
		key = k
		last, err := safefs.ReadRegularIn(s.Dir(), gitSeenFile, 1<<10)
		return err == nil && string(last) == k
	})
	return found, func() error {
		if key == "" {
			return nil
		}
		return safefs.WriteDurably(s.Dir(), gitSeenFile, []byte(key))
	}, nil
}
