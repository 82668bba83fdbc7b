// Package branch commits the changes of a sandbox to a new branch of its source's git repository.
// The work tree, the index and the sandbox stay as they are.
//
// The commit is HEAD with the changes. Where HEAD has another version of a file than the sandbox
// saw, because the work tree was changed and not committed, the change is merged into HEAD's
// version; a conflict refuses the whole commit, by path. What the policy, the review and
// conflicts keep from an apply, they keep from a commit.
package branch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitcommit"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// Options say what to commit, and where.
type Options struct {
	apply.Options        // Paths, Hunks, DryRun, Reviewed, AtStart and Drop
	Branch        string // that does not exist yet
	Message       string // of the commit; "" for one that names the sandbox
	// For is a user of a server, by whom the commit is; nil for the caller. git then neither reads
	// nor writes anything outside of the source, and Commit waits for the source's lock.
	For *gitconfig.User
	// Shown is what the commit may have, if it is to be attested; nil for all that Reviewed names.
	// Nothing is then merged into HEAD's version, because no person has seen the result.
	Shown manifest.Manifest
}

// Result is what became of the changes: apply.Applied means that the commit has it.
type Result struct {
	apply.Result
	Commit string // its id
	branch string
	parent string       // its parent, "" for none
	dir    vpath.Path   // the source in the repository
	files  []vpath.Path // that it changes, of the source
}

// Commit commits changes of a sandbox. Errors: Precondition, if a path stops the commit, or the
// source is in no repository, or in none for Options.For; Exists, Invalid for the branch; those of
// apply.ReadPlanned.
func Commit(ctx context.Context, s *record.Sandbox, o Options) (result Result, err error) {
	source, err := s.Stored.Source.Open()
	if err != nil {
		return result, err
	}
	defer source.Close()
	if o.For != nil {
		h, err := lockContained(ctx, s.Home, s.Stored.Source, o.Waiting)
		if err != nil {
			return result, errdefs.New(errdefs.KindOf(err), "apply %s to a branch: %w", s.Ref(), err)
		}
		defer h.Unlock()
	}
	repo, err := gitcommit.Open(ctx, string(s.Stored.Source.Path))
	if err != nil {
		return result, errdefs.New(errdefs.KindOf(err), "apply %s to a branch: %w", s.Ref(), err)
	}
	if o.For != nil {
		repo.ActFor(o.For.Name, o.For.Email)
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	if err := repo.CheckBranch(ctx, o.Branch); err != nil {
		return result, err
	}
	work, err := changes.OpenToRead(s)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	c := &commit{repo: repo, work: work, shown: o.Shown}
	if result.Groups, err = apply.ReadPlanned(s, o.Options, c.take); err != nil {
		return result, err
	}
	if err := c.decide(ctx); err != nil {
		return result, err
	}
	result.Paths = c.results()
	result.branch, result.parent, result.dir, result.files = o.Branch, repo.Parent(), vpath.Path(path.Join("/", repo.Path(vpath.Root))), c.committed()
	if err := apply.Refusal(s.Ref(), result.Paths); err != nil {
		result.Skip()
		return result, err
	}
	if len(c.changed) == 0 {
		return result, errdefs.New(errdefs.Precondition, "apply %s to a branch: there is nothing to commit", s.Ref())
	}
	message := cmp.Or(o.Message, "Changes of the agentfense sandbox "+s.Name())
	if result.Commit, err = repo.Commit(ctx, c.changed, o.Branch, message, o.DryRun); err != nil || o.DryRun {
		return result, err
	}
	return result, s.Log(c.event(s.Mount(), o.Branch, result.Commit))
}

// commit is a commit in the making.
type commit struct {
	repo    *gitcommit.Repository
	work    *changes.Work
	shown   manifest.Manifest // Options.Shown
	files   []*file
	changed map[string]gitcommit.Entry
}

// file is a change that may become part of the commit.
type file struct {
	apply.PlannedChange
	at        string // in the repository
	ours      string // the names of contents that are put, "" for none
	base      string
	oursID    string
	baseID    string
	oursMode  string // of git; "" for a deletion
	baseMode  string
	head      gitcommit.Entry // the zero Entry if HEAD does not have it
	committed gitcommit.Entry
}

func (f *file) stop(o apply.Outcome, reason string) {
	f.Shown.Outcome, f.Shown.Reason = o, reason
}

func (f *file) isPlanned() bool { return f.Shown.Outcome == apply.Applied }

// take takes a change as apply would apply it, with its content.
func (c *commit) take(change apply.PlannedChange, content *os.File) error {
	f := &file{PlannedChange: change, at: c.repo.Path(change.Path)}
	c.files = append(c.files, f)
	if !f.isPlanned() {
		return nil
	}
	if why := notInCommits(f); why != "" {
		f.stop(apply.LeftOut, why)
		return nil
	}
	if err := c.takeNew(f, content); err != nil || !f.isPlanned() {
		return err
	}
	return c.takeBase(f)
}

// checkShown stops a file that is not as it was shown, for a commit that is to be attested.
func (c *commit) checkShown(f *file, sum string) {
	if c.shown == nil {
		return
	}
	if e, is := c.shown[f.Path]; !is || gitcommit.ModeOf(e.Mode) != f.oursMode || e.IsRegular() && e.SHA256 != sum || e.Target != record.HostPath(f.Target).String() {
		f.stop(apply.ChangedSinceReview, "it has changed since it was shown")
	}
}

// notInCommits says why no commit has a change, "" if one may.
func notInCommits(f *file) string {
	is, was := f.Mode&record.TypeBits, uint32(0)
	if f.Base != nil && !f.Base.Absent {
		was = f.Base.Mode & record.TypeBits
	}
	_, _, inGit := review.GitDirOf(f.Path)
	switch {
	case inGit, slices.ContainsFunc(strings.Split(f.Path.Rel(), "/"), func(name string) bool { return strings.EqualFold(name, ".git") }):
		return "a commit has no files of a git directory"
	case f.Shown.Implied:
		return ""
	case is == unix.S_IFDIR && was == unix.S_IFDIR:
		return "a commit has no modes of directories"
	case (is == unix.S_IFDIR || is == 0) && (was == unix.S_IFDIR || was == 0):
		return "a commit has no empty directories"
	case is == unix.S_IFIFO:
		return "a commit has no FIFOs"
	}
	return ""
}

// takeNew stores the content in the sandbox.
func (c *commit) takeNew(f *file, content *os.File) (err error) {
	var from io.Reader
	sum := ""
	defer func() { c.checkShown(f, sum) }()
	switch f.Mode & record.TypeBits {
	case unix.S_IFREG:
		from = content
	case unix.S_IFLNK:
		from = strings.NewReader(f.Target)
	default:
		return nil
	}
	f.oursMode = gitcommit.ModeOf(f.Mode)
	f.ours, sum, err = c.repo.Put(from)
	if err == nil && f.SHA256 != "" && sum != f.SHA256 {
		f.stop(apply.ChangedSinceReview, "it has changed since it was shown")
	}
	return err
}

// takeBase stores what the sandbox saw, which the source still has.
func (c *commit) takeBase(f *file) error {
	if f.Base == nil || f.Base.Absent {
		return nil
	}
	var err error
	switch f.Base.Mode & record.TypeBits {
	case unix.S_IFREG:
		var content *os.File
		err = rights.AsUser(func() (err error) {
			content, err = c.work.Stack.OpenSource(f.Path)
			return err
		})
		if err == nil {
			f.base, _, err = c.repo.Put(content)
			content.Close()
		}
	case unix.S_IFLNK:
		var target string
		if target, err = c.work.Stack.SourceReadlink(f.Path); err == nil {
			f.base, _, err = c.repo.Put(strings.NewReader(target))
		}
	default:
		return nil
	}
	f.baseMode = gitcommit.ModeOf(f.Base.Mode)
	if record.UnlessDenied(err) != nil {
		return err
	}
	fresh, freshErr := c.work.IsFresh(f.Path, f.Base)
	if err != nil || !fresh {
		f.stop(apply.Conflict, "changed in the source meanwhile")
	}
	return freshErr
}

// results are the outcomes, by path.
func (c *commit) results() []apply.PathResult {
	var list []apply.PathResult
	for _, f := range c.files {
		list = append(list, f.Shown)
	}
	slices.SortStableFunc(list, func(a, b apply.PathResult) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

func (c *commit) event(mount, branch, id string) audit.Applied {
	e := audit.Applied{Mount: mount, Branch: audit.Text(branch), Commit: id}
	for _, p := range c.committed() {
		e.Paths = append(e.Paths, audit.Text(p))
	}
	for _, f := range c.files {
		switch f.Shown.Outcome {
		case apply.Applied, apply.Present, apply.LeftOut:
		default:
			e.Refused = append(e.Refused, audit.Text(f.Path))
		}
	}
	return e
}

// committed returns the paths of the files and links that the commit changes: no directories.
func (c *commit) committed() []vpath.Path {
	var list []vpath.Path
	for _, f := range c.files {
		if _, is := c.changed[f.at]; is && f.isPlanned() {
			list = append(list, f.Path)
		}
	}
	return list
}

// names returns the paths of files in the repository.
func names(files []*file) []string {
	list := make([]string, len(files))
	for i, f := range files {
		list[i] = f.at
	}
	return list
}
