// Package transplant brings the commits of a sandbox's clean repository into the repository of its
// source.
//
// TakeOut never runs git on the sandbox's repository. It reads refs and loose objects itself, and
// takes packs without their indexes. Git stores all of that in a new repository, and checks what
// the branches reach as strictly as what is pushed. Transplant makes the commits anew on top of the
// source's branch: the tree of the parent with the change of each commit, merged three-way, without
// what the policy hides. The source's repository is read and not changed; package branch stores the
// result in it.
package transplant

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

// takeTimeout bounds how long commits are taken out.
const takeTimeout = 10 * time.Minute

// maxCommits bounds how many commits are taken out.
const maxCommits = 10_000

func hostError(err error) error { return safefs.OwnError("commits", err) }

// Taken has the commits of a sandbox in a repository of ours. Its objects came as packs, and git
// has checked each of them as strictly as it checks what is pushed. Nothing else of the sandbox's
// repository was taken: no configuration, hook, attribute, alternate, graft or replacement.
type Taken struct {
	Info    *cleangit.Info
	Heads   *cleangit.Heads
	Commits []*Commit // that the sandbox has made, parents first

	git    *gitrun.Git
	source *cleangit.Source // nil if lost says why
	lost   error
	lower  *os.File
	reals  map[string]string
	byID   map[string]*Commit
	became map[string][]cleangit.Became // of commits that were brought out before
}

// TakeOut takes the commits out of the sandbox's repository. workspace is the source, of which the
// repository may be lost: Transplant then fails. Close it after. Errors: Precondition with the
// reason if commands have damaged the repository, or git refuses an object; Exhausted; Deadline;
// Canceled; Unsupported without a git.
func TakeOut(ctx context.Context, s cleangit.Store, workspace *os.File) (t *Taken, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeTimeout)
	defer cancel()
	t = &Taken{byID: map[string]*Commit{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
		}
	}()
	if t.Info, err = s.Info(); err != nil {
		return t, err
	}
	if t.Heads, err = s.Heads(); err != nil {
		return t, err
	}
	if t.reals, err = s.History(); err != nil {
		return t, err
	}
	if t.became, err = s.Taken(); err != nil {
		return t, err
	}
	tips := t.newTips()
	t.source, t.lost = cleangit.OpenSource(workspace)
	if len(tips) == 0 {
		return t, nil
	}
	if err := t.prepare(ctx, s, workspace); err != nil {
		return t, err
	}
	if err := t.stage(ctx, s); err != nil {
		return t, err
	}
	return t, t.check(ctx, tips)
}

// Close removes the repository.
func (t *Taken) Close() error {
	if t.source != nil {
		t.source.Close()
	}
	if t.lower != nil {
		t.lower.Close()
	}
	if t.git == nil {
		return nil
	}
	return t.git.Close()
}

// newTips are the branches' commits that the sandbox was not made with, each once.
func (t *Taken) newTips() []string {
	var tips []string
	for _, id := range t.Heads.Commits {
		if _, isOld := t.reals[id]; !isOld {
			tips = append(tips, id)
		}
	}
	slices.Sort(tips)
	return slices.Compact(tips)
}

// The repositories in which commits are taken out: "staged" has all objects of the sandbox,
// "clean" what its branches reach, checked, and "work" that and the source's objects.
func (t *Taken) prepare(ctx context.Context, s cleangit.Store, workspace *os.File) error {
	m, err := s.OpenMerged()
	if err != nil {
		return err
	}
	defer m.Close()
	if t.lower, err = m.LowerObjects(); err != nil {
		return err
	}
	owner, err := t.owner(s, workspace)
	if err != nil {
		return err
	}
	if t.git, err = gitrun.New(owner); err != nil {
		return err
	}
	// Another user than us cannot reach our directories, also by descriptor: git resolves the path.
	var lower []*os.File
	if owner == nil {
		lower = append(lower, t.lower)
	}
	id, alternates := t.Info.Head, map[string]string{"objects/info/alternates": "../../clean/objects\n"}
	err = errors.Join(t.git.MakeRepository("clean", id, nil, lower...), t.git.MakeRepository("staged", id, alternates, lower...))
	if t.source != nil {
		if len(t.source.Shallow) > 0 {
			alternates["shallow"] = strings.Join(t.source.Shallow, "\n") + "\n"
		}
		err = errors.Join(err, t.git.MakeRepository("work", id, alternates, append([]*os.File{t.source.Objects}, lower...)...))
	}
	if err = errors.Join(err, t.git.Give()); err != nil || owner == nil {
		return err
	}
	return t.copyLower(ctx)
}

// owner is the user for whom root runs git: that of the source's repository, else of the source, or
// if both are lost and workspace has no name, of the commands.
func (t *Taken) owner(s cleangit.Store, workspace *os.File) (*syscall.Credential, error) {
	if t.source != nil {
		return t.source.Credential(), nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(workspace.Fd()), &st); err != nil {
		return nil, hostError(err)
	}
	if st.Nlink > 0 {
		return cleangit.OwnerToRun(st.Uid, st.Gid), nil
	}
	uid, gid, err := s.Owner()
	return cleangit.OwnerToRun(uid, gid), err
}

// copyLower brings the objects that the repository was made with into the repository "clean".
func (t *Taken) copyLower(ctx context.Context) error {
	pack, err := safefs.OpenRegular(int(t.lower.Fd()), path.Join("pack", t.Info.Pack+".pack"))
	if err != nil {
		return hostError(err)
	}
	defer pack.Close()
	_, err = t.git.Run(ctx, "clean", io.MultiReader(pack), "index-pack", "--stdin")
	return err
}

// stage brings all objects that commands have written into the repository "staged".
func (t *Taken) stage(ctx context.Context, s cleangit.Store) error {
	m, err := s.OpenMerged()
	if err != nil {
		return err
	}
	defer m.Close()
	objects, err := m.UpperObjects()
	if err != nil || objects == nil {
		return err
	}
	defer objects.Close()
	if err := t.stagePacks(ctx, objects); err != nil {
		return err
	}
	p, err := newLoosePack(len(t.Info.Head))
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.addAll(ctx, objects); err != nil || p.count == 0 {
		return err
	}
	pack, err := p.reader()
	if err != nil {
		return err
	}
	return t.index(ctx, "loose objects", pack)
}

// stagePacks brings the packs of the sandbox in. Their indexes are made anew.
func (t *Taken) stagePacks(ctx context.Context, objects *os.File) error {
	dir, err := cleangit.OpenBelow(objects, "pack")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return cleangit.Unreadable("objects/pack", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return cleangit.Unreadable("objects/pack", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "pack-") || !strings.HasSuffix(name, ".pack")
	})
	slices.Sort(names)
	left := int64(maxPackedBytes)
	for _, name := range names {
		size, err := t.stagePack(ctx, dir, name, left)
		if err != nil {
			return err
		}
		if left -= size; left < 0 || len(names) > maxPacks {
			return errdefs.New(errdefs.Exhausted, "the sandbox's repository has more than %d packs, or 4 GiB of them; run git gc in the sandbox", maxPacks)
		}
	}
	return nil
}

func (t *Taken) stagePack(ctx context.Context, dir *os.File, name string, left int64) (int64, error) {
	f, err := safefs.OpenRegular(int(dir.Fd()), name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var info os.FileInfo
	if err == nil {
		defer f.Close()
		info, err = f.Stat()
	}
	if errdefs.Is(err, errdefs.Invalid) {
		var st unix.Stat_t
		if unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && cleangit.IsWhiteout(&st) {
			return 0, nil // of a pack that the repository was made with
		}
	}
	if err != nil {
		return 0, cleangit.Unreadable(path.Join("objects/pack", name), err)
	}
	if info.Size() > left {
		return info.Size(), nil
	}
	return info.Size(), t.index(ctx, "objects/pack/"+name, io.LimitReader(f, left))
}

func (t *Taken) index(ctx context.Context, what string, pack io.Reader) error {
	if _, err := t.git.Run(ctx, "staged", pack, "index-pack", "--stdin"); err != nil {
		return errdefs.New(errdefs.KindOf(err), "the sandbox's repository: %s: %w", what, err)
	}
	return nil
}

// check brings what the tips reach into the repository "clean", and reads the commits.
func (t *Taken) check(ctx context.Context, tips []string) error {
	refuse := func(err error) error {
		return errdefs.New(errdefs.KindOf(err), "the commits of the sandbox cannot be taken out: %w", err)
	}
	types, err := t.git.Run(ctx, "staged", strings.NewReader(strings.Join(tips, "\n")+"\n"), "cat-file", "--batch-check=%(objecttype)")
	if err != nil {
		return refuse(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(types, "\n"), "\n") {
		if line != "commit" {
			return refuse(errdefs.New(errdefs.Precondition, "%s is no commit, or it is missing", tips[min(i, len(tips)-1)]))
		}
	}
	revisions := strings.Join(tips, "\n") + "\n^" + t.Info.Head + "\n"
	count, err := t.git.Run(ctx, "staged", strings.NewReader(revisions), "rev-list", "--stdin", "--count", "--max-count="+strconv.Itoa(maxCommits+1))
	if err != nil {
		return refuse(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(count)); err != nil || n > maxCommits {
		return refuse(errdefs.New(errdefs.Exhausted, "there are more than %d", maxCommits))
	}
	if _, err := t.git.Transfer(ctx, "staged", "clean", revisions, "--stdin", "--strict"); err != nil {
		return refuse(err)
	}
	if err := t.readCommits(ctx, revisions); err != nil {
		return refuse(err)
	}
	return nil
}

// Of returns the commits that a branch, or cleangit.Detached, has and the sandbox was not made
// with, parents first. Errors: NotFound.
func (t *Taken) Of(ref string) ([]*Commit, error) {
	tip, ok := t.Heads.Commits[ref]
	if !ok {
		return nil, errdefs.New(errdefs.NotFound, "the sandbox's repository has no branch %q", strings.TrimPrefix(ref, branches))
	}
	reached := map[string]bool{}
	for todo := []string{tip}; len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if c := t.byID[id]; c != nil && !reached[id] {
			reached[id] = true
			todo = append(todo, c.Parents...)
		}
	}
	return slices.DeleteFunc(slices.Clone(t.Commits), func(c *Commit) bool { return !reached[c.ID] }), nil
}

// Refs lists what has commits that the sandbox was not made with: the one that is checked out
// first.
func (t *Taken) Refs() []string {
	var refs []string
	for _, ref := range slices.Sorted(maps.Keys(t.Heads.Commits)) {
		if t.byID[t.Heads.Commits[ref]] != nil {
			refs = append(refs, ref)
		}
	}
	slices.SortStableFunc(refs, func(a, b string) int {
		return strings.Compare(t.rank(a), t.rank(b))
	})
	return refs
}

func (t *Taken) rank(ref string) string {
	if ref == t.Heads.Current {
		return "0"
	}
	return "1"
}
