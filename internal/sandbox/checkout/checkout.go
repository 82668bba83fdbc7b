// Package checkout moves the branch that is checked out in a source to a commit that continues it,
// with the work tree and the index, as a transaction of the source's history: all or nothing, also
// after a kill, and undo takes it back.
//
// Only paths that the commits change are looked at. Each must be in the index and in the work tree
// as in the commit that is left; nothing else may be there, ignored or not. We write the files and
// the index ourselves, beneath the source's handle: git runs no filter, hook or file monitor. A
// path that git would convert is refused. Git moves the branch by update-ref.
//
// The caller holds the source's lock.
package checkout

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// maxFiles bounds the files that change.
const maxFiles = 1_000_000

// Plan is what brings the source to the new commit.
type Plan struct {
	Blocked []Blocked // paths that stop it

	repo    *gitcommit.Repository
	tree    *changes.SourceTree
	objects *gitcommit.Objects
	move    history.BranchMove
	files   []*file
	known   *index
	ways    map[vpath.Path]string // of a directory: why nothing below it can change, or ""
	missing map[vpath.Path]bool   // directories to make
}

// Blocked is a path, and why it stops the plan.
type Blocked struct {
	Path string // in the repository
	Why  string
}

// file is a file or a link that changes.
type file struct {
	gitcommit.Changed
	at     vpath.Path
	before *unix.Stat_t // nil for none
	was    *history.Entity
	target string // of the new link
	step   int    // in the transaction
	placed unix.Stat_t
}

func (f *file) isNew() bool  { return f.Old == (gitcommit.Entry{}) }
func (f *file) isGone() bool { return f.New == (gitcommit.Entry{}) }
func (f *file) isLink() bool { return f.New.Mode == gitcommit.Link }

// Prepare plans to move the branch, and changes nothing. The objects of the new commit may be those
// of repo.StoreAside. Close the plan after. Errors: Precondition if the repository cannot be
// brought to another commit at all.
func Prepare(ctx context.Context, repo *gitcommit.Repository, tree *changes.SourceTree, move history.BranchMove) (p *Plan, err error) {
	now, err := history.ReadCheckedOut(tree)
	if err != nil {
		return nil, err
	}
	if why := now.Refuses(move.Ref, move.From); why != "" {
		return nil, errdefs.New(errdefs.Precondition, "%s", why)
	}
	if err := checkWorkTrees(ctx, repo, tree, move.Ref); err != nil {
		return nil, err
	}
	p = &Plan{repo: repo, tree: tree, move: move, ways: map[vpath.Path]string{}, missing: map[vpath.Path]bool{}}
	if p.known, err = readIndex(tree); err != nil {
		return nil, err
	}
	if p.objects, err = repo.ObjectsAside(ctx); err != nil {
		return nil, err
	}
	if err := p.compare(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// checkWorkTrees refuses a repository of which the source is not the work tree, or of which another
// work tree has the branch checked out. Errors: Precondition.
func checkWorkTrees(ctx context.Context, repo *gitcommit.Repository, tree *changes.SourceTree, ref string) error {
	if elsewhere, err := repo.HasOtherWorkTree(ctx); err != nil || elsewhere {
		return cmp.Or(err, errdefs.New(errdefs.Precondition, "the work tree of the repository is another directory (core.worktree): name a new branch with --to-branch (to_branch)"))
	}
	other, err := otherWorkTree(tree, ref)
	if err == nil && other != "" {
		err = errdefs.New(errdefs.Precondition, "the branch is checked out in another work tree, too (%s): switch that one to another branch", vpath.Quote(other))
	}
	return err
}

// otherWorkTree returns the name of a linked work tree that has the branch checked out, or "".
// Errors: Precondition if they cannot be read.
func otherWorkTree(tree *changes.SourceTree, ref string) (string, error) {
	const dir vpath.Path = "/.git/worktrees"
	unreadable := func(p vpath.Path, err error) error {
		return errdefs.New(errdefs.Precondition, "%s: %w; so it is not known which branches other work trees have", p, record.UnwrapErrno(err))
	}
	fd, err := tree.OpenDir(dir, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", unreadable(dir, err)
	}
	list := os.NewFile(uintptr(fd), "worktrees")
	defer list.Close()
	names, err := list.Readdirnames(-1)
	if err != nil {
		return "", unreadable(dir, err)
	}
	for _, name := range names {
		one, err := tree.OpenDir(dir.Child(name), unix.O_RDONLY)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
			continue // removed meanwhile, or no work tree
		}
		if err != nil {
			return "", unreadable(dir.Child(name), err)
		}
		there, _, err := githistory.ReadHead(one)
		unix.Close(one)
		if err != nil {
			return "", unreadable(dir.Child(name), err)
		}
		if there == ref {
			return name, nil
		}
	}
	return "", nil
}

// Close ends the reading of objects.
func (p *Plan) Close() { p.objects.Close() }

// compare finds what changes, and checks it.
func (p *Plan) compare(ctx context.Context) error {
	list, err := p.objects.Compare(p.move.From, p.move.To, maxFiles)
	if err != nil {
		return err
	}
	var written []string
	for _, c := range list {
		if c.New.Mode == gitcommit.Regular || c.New.Mode == gitcommit.Executable {
			written = append(written, c.Path)
		}
	}
	converted, err := p.repo.Conversions(ctx, p.move.To, written)
	if err != nil {
		return err
	}
	for _, c := range list {
		if ctx.Err() != nil {
			return errdefs.New(errdefs.Canceled, "check the work tree: %w", ctx.Err())
		}
		f := &file{Changed: c}
		why, err := p.check(f, converted[c.Path])
		if err != nil {
			return err
		}
		if why != "" {
			p.Blocked = append(p.Blocked, Blocked{c.Path, why})
			continue
		}
		p.files = append(p.files, f)
	}
	return nil
}

// check says why a file stops the plan, or "".
func (p *Plan) check(f *file, converted string) (why string, err error) {
	at, ok := gitindex.TrackedPath(vpath.Root, f.Path)
	isGit := func(element string) bool { return strings.EqualFold(element, ".git") }
	switch {
	case !ok || slices.ContainsFunc(strings.Split(f.Path, "/"), isGit):
		return "no work tree has a file of this name", nil
	case f.Old.Mode == gitcommit.Submodule || f.New.Mode == gitcommit.Submodule:
		return "a submodule: its commits are in another repository", nil
	case converted != "":
		return converted + ", which is not done here", nil
	}
	f.at = at
	if why := cmp.Or(p.known.refuses(f), p.way(at.Dir())); why != "" {
		return why, nil
	}
	if f.isLink() {
		var target bytes.Buffer
		if err := p.objects.Blob(f.New.ID, &target); err != nil {
			return "", err
		}
		f.target = target.String()
		if f.target == "" || len(f.target) >= unix.PathMax || strings.ContainsRune(f.target, 0) {
			return "a symbolic link with a target that is empty or too long", nil
		}
	}
	return p.inWorkTree(f)
}

// way says why no file can be below a directory, or "". It notes directories that are missing.
func (p *Plan) way(dir vpath.Path) string {
	if dir.IsRoot() {
		return ""
	}
	if why, done := p.ways[dir]; done {
		return why
	}
	why := p.way(dir.Dir())
	if why == "" && !p.missing[dir.Dir()] {
		why = p.wayOne(dir)
	} else if why == "" {
		p.missing[dir] = true
	}
	p.ways[dir] = why
	return why
}

// wayOne is way for a directory whose parent is there.
func (p *Plan) wayOne(dir vpath.Path) (why string) {
	err := p.tree.At(dir, func(e changes.Entry) error {
		now, err := e.Stat()
		switch {
		case err != nil:
			return err
		case now == nil:
			p.missing[dir] = true
		case !record.IsDir(now.Mode):
			why = "its directory " + changes.Quote(dir) + " is a " + record.TypeName(now.Mode) + " in the work tree"
		}
		return nil
	})
	if err == nil && why == "" && !p.missing[dir] {
		err = p.tree.At(dir.Child(".git"), func(e changes.Entry) error {
			now, err := e.Stat()
			if now != nil {
				why = changes.Quote(dir) + " is another repository in the work tree"
			}
			return err
		})
	}
	if err != nil {
		return "its directory " + changes.Quote(dir) + " cannot be opened: " + record.UnwrapErrno(err).Error()
	}
	return why
}

// inWorkTree says why the work tree does not have the old file, or "".
func (p *Plan) inWorkTree(f *file) (why string, err error) {
	if p.missing[f.at.Dir()] {
		if f.isNew() {
			return "", nil
		}
		return "it is deleted in the work tree: commit or restore it first", nil
	}
	err = p.tree.At(f.at, func(e changes.Entry) (err error) {
		if f.before, err = e.Stat(); err != nil {
			return err
		}
		if f.was, err = history.EntityOf(e, f.before); err != nil {
			return err
		}
		why, err = f.differs(e)
		return err
	})
	if err != nil {
		return "it cannot be read: " + record.UnwrapErrno(err).Error(), nil
	}
	return why, nil
}

// differs says how the entry of the work tree differs from the old file, or "".
func (f *file) differs(e changes.Entry) (why string, err error) {
	switch {
	case f.isNew() && f.before != nil && record.IsDir(f.before.Mode):
		return "a directory is in the way in the work tree", nil
	case f.isNew() && f.before != nil:
		return "a file that git does not track is in the way in the work tree", nil
	case f.isNew():
		return "", nil
	case f.before == nil:
		return "it is deleted in the work tree: commit or restore it first", nil
	case gitcommit.ModeOf(f.before.Mode) != f.Old.Mode:
		return "its mode or type is changed in the work tree: commit or restore it first", nil
	}
	same, err := f.isOld(e)
	if err == nil && !same {
		why = "it is changed in the work tree: commit, stash or restore it first"
	}
	return why, err
}

// isOld reports whether the entry has the content of the old file.
func (f *file) isOld(e changes.Entry) (bool, error) {
	if f.Old.Mode == gitcommit.Link {
		target, err := e.Target()
		if err != nil {
			return false, err
		}
		id, err := gitcommit.BlobID(len(f.Old.ID), int64(len(target)), strings.NewReader(target))
		return id == f.Old.ID, err
	}
	content, err := e.OpenFile()
	if err != nil {
		return false, err
	}
	defer content.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(content.Fd()), &st); err != nil {
		return false, err
	}
	id, err := gitcommit.BlobID(len(f.Old.ID), f.before.Size, content)
	return id == f.Old.ID && changes.IsVersion(f.before, &st), err
}

// errBlocked is the error of Execute for a plan that paths stop.
var errBlocked = errdefs.New(errdefs.Precondition, "some paths stop it")

// Execute executes the plan, whose objects the repository must have by now, as a transaction of h,
// and returns its id. why is for git's log of the branch. If a step fails, it restores the source.
// Errors: Precondition if something has changed since the plan; Exhausted; those of the host.
func (p *Plan) Execute(ctx context.Context, h *history.Source, header history.Header, why string) (id string, err error) {
	if len(p.Blocked) > 0 {
		return "", errBlocked
	}
	header.Branch = &p.move
	x, err := p.newExecution()
	if err != nil {
		return "", err
	}
	if x.txn, err = h.Begin(p.tree, header, x.steps); err != nil {
		return "", err
	}
	err = x.run(ctx)
	if err == nil {
		err = x.txn.MoveBranch(func(b history.BranchMove, held *os.File) error {
			return p.repo.MoveBranch(ctx, held, b.Ref, b.From, b.To, why)
		})
	}
	if err != nil {
		return "", x.rollBack(err)
	}
	return x.txn.ID(), x.txn.Commit(nil)
}

// rollBack restores the source after a failure.
func (x *execution) rollBack(failure error) error {
	if errors.Is(failure, changes.ErrMoved) {
		failure = errdefs.New(errdefs.Precondition, "%w", failure)
	} else if errdefs.KindOf(failure) == errdefs.Internal {
		failure = errdefs.New(record.DiskKind(failure), "%w", failure)
	}
	left, err := x.txn.Rollback()
	if err != nil {
		return errors.Join(failure, errdefs.New(record.DiskKind(err), "%w: some files are changed; the next command on this source restores it", err))
	}
	if len(left) > 0 {
		var names []string
		for _, l := range left {
			names = append(names, changes.Quote(l.Path)+" ("+l.Reason+")")
		}
		return errdefs.New(errdefs.KindOf(failure), "%w; the source was restored but for %s", failure, strings.Join(names, ", "))
	}
	return errdefs.New(errdefs.KindOf(failure), "%w; nothing was applied", failure)
}

// umask returns the mask for the modes of new files, of this process.
func umask() uint32 {
	const usual = 0o022
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return usual
	}
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "Umask:"); is {
			mask, err := parseOctal(strings.TrimSpace(value))
			if err == nil {
				return mask & 0o777
			}
		}
	}
	return usual
}
