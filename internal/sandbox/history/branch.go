package history

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// BranchMove is a branch that a transaction moves after its steps, which bring the work tree and
// the index along. Git moves it, from one commit to the other or not at all. That it is moved
// commits the transaction: after a kill it is completed then, and rolled back otherwise.
type BranchMove struct {
	Ref  string `json:"ref"`
	From string `json:"from"`
	To   string `json:"to"`
}

const branches = "refs/heads/"

// BranchRef is the ref of the branch called name.
func BranchRef(name string) string { return branches + name }

// Name is the name of the branch, not escaped.
func (b *BranchMove) Name() string { return strings.TrimPrefix(b.Ref, branches) }

// reversed is the move back; nil of nil.
func (b *BranchMove) reversed() *BranchMove {
	if b == nil {
		return nil
	}
	return &BranchMove{Ref: b.Ref, From: b.To, To: b.From}
}

// The paths in a source of its repository and of the index. Git takes the lock of the index to
// change it.
const (
	gitDir    vpath.Path = "/.git"
	Index                = gitDir + "/index"
	indexLock            = gitDir + "/index.lock"
)

// CheckedOut is the state of a source's repository.
type CheckedOut struct {
	Ref    string // the branch; "" if HEAD is detached
	Commit string
	Busy   string // the command of git that waits to be continued, or ""
}

// unfinished are the files that a command of git leaves until it is continued or aborted.
var unfinished = []struct{ file, command string }{
	{"MERGE_HEAD", "merge"},
	{"CHERRY_PICK_HEAD", "cherry-pick"},
	{"REVERT_HEAD", "revert"},
	{"rebase-merge", "rebase"},
	{"rebase-apply", "rebase"},
	{"sequencer", "cherry-pick"},
	{"BISECT_LOG", "bisect"},
}

// ReadCheckedOut reads what is checked out in the source, without git. Errors: Precondition for a
// repository that cannot be read.
func ReadCheckedOut(tree *changes.SourceTree) (c CheckedOut, err error) {
	dir, err := tree.OpenDir(gitDir, unix.O_RDONLY)
	if err != nil {
		return c, errdefs.New(errdefs.Precondition, ".git: %w", err)
	}
	defer unix.Close(dir)
	refs, err := githistory.ReadRefs(dir)
	if err == nil {
		c.Ref, _, err = githistory.ReadHead(dir)
	}
	if err != nil {
		return c, errdefs.New(errdefs.Precondition, ".git: %w", err)
	}
	c.Commit = refs["HEAD"]
	for _, u := range unfinished {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, u.file, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
			c.Busy = u.command
			break
		}
	}
	return c, nil
}

// Refuses says why a branch that is at a commit cannot be moved, or "".
func (c *CheckedOut) Refuses(ref, commit string) string {
	switch {
	case c.Busy != "":
		return fmt.Sprintf("git %s is in progress: end it with --continue or --abort (git bisect reset for a bisect)", c.Busy)
	case c.Ref != ref:
		return fmt.Sprintf("the branch %s is not checked out", vpath.Quote(strings.TrimPrefix(ref, branches)))
	case c.Commit != commit:
		return fmt.Sprintf("the branch is at the commit %s now", vpath.Escape(c.Commit))
	}
	return ""
}

// lockText is what the lock of the index contains while a transaction has it.
func (h *Header) lockText() string { return "agentfense " + h.ID + "\n" }

// lockIndex takes the lock of the index for a transaction that moves a branch, so that git changes
// neither the index nor what is checked out until the transaction ends, also after a kill. Errors:
// Precondition if git has it.
func (t *Txn) lockIndex() error {
	if t.entry.Branch == nil {
		return nil
	}
	err := t.tree.At(indexLock, func(e changes.Entry) error {
		file, err := e.StageText([]byte(t.entry.lockText()), changes.Look{Mode: 0o644, Mtime: unix.NsecToTimespec(time.Now().UnixNano())})
		if err != nil {
			return err
		}
		defer file.Close()
		return e.Place(file, nil)
	})
	if errors.Is(err, changes.ErrMoved) {
		return errdefs.New(errdefs.Precondition, "%s exists: git is changing the repository; if no git runs, remove the file", indexLock)
	}
	if err != nil {
		return record.HostError("history", err)
	}
	failpoint.At("journal: index locked")
	return nil
}

// unlockIndex removes the lock of the index, if the transaction has it.
func unlockIndex(tree *changes.SourceTree, h *Header) error {
	if h.Branch == nil {
		return nil
	}
	err := tree.At(indexLock, func(e changes.Entry) error {
		text, err := safefs.ReadRegular(e.Dir, e.Name, int64(len(h.lockText())))
		if err != nil || string(text) != h.lockText() {
			return nil //nolint:nilerr // absent, or of git
		}
		return unix.Unlinkat(e.Dir, e.Name, 0)
	})
	if err != nil && !changes.IsWayGone(err) {
		return record.HostError("history", err)
	}
	failpoint.At("journal: index unlocked")
	return nil
}

// hasMoved reports whether the branch of a transaction was moved. The owner may have moved it on
// since, if the journal says that it was moved, and may have renamed it.
func (e *Entry) hasMoved(tree *changes.SourceTree) (bool, error) {
	if e.Branch == nil || e.moved {
		return e.moved, nil
	}
	dir, err := tree.OpenDir(gitDir, unix.O_RDONLY)
	if changes.IsWayGone(err) {
		return false, nil
	}
	if err != nil {
		return false, record.HostError("history", err)
	}
	defer unix.Close(dir)
	refs, err := githistory.ReadRefs(dir)
	return cmp.Or(refs[e.Branch.Ref], refs["HEAD"]) == e.Branch.To, err
}

// noteMoved writes to the journal that the branch was moved, before the index is unlocked: from
// then on git lets the owner commit on top. The branch is durable before.
func (t *Txn) noteMoved() error {
	if err := syncTree(t.tree); err != nil {
		return record.HostError("history", err)
	}
	t.entry.moved = true
	t.add(line{Moved: true})
	return t.flush()
}

// Mover moves a branch by git. git must keep the file held open as long as it runs: this is the
// source's lock, so that nobody recovers the transaction while a git runs whose parent was killed.
type Mover func(b BranchMove, held *os.File) error

// MoveBranch moves the branch of the transaction after all its steps, by git. The changes of the
// source must be durable before. Errors: those of move, if the branch is not moved; Precondition if
// another branch is checked out meanwhile. Roll the transaction back then.
func (t *Txn) MoveBranch(move Mover) error {
	b := t.entry.Branch
	now, err := ReadCheckedOut(t.tree)
	if err != nil {
		return err
	}
	if why := now.Refuses(b.Ref, b.From); why != "" {
		return errdefs.New(errdefs.Precondition, "%s", why)
	}
	failpoint.At("journal: moving branch")
	err = move(*b, t.source.lock)
	if moved, readErr := t.entry.hasMoved(t.tree); !moved {
		return errors.Join(err, readErr, errdefs.New(errdefs.Precondition, "branch %s was not moved", vpath.Quote(b.Name())))
	}
	failpoint.At("journal: moved branch")
	return t.noteMoved()
}

// complete ends a transaction whose branch was moved before its process was killed.
func (s *Source) complete(tree *changes.SourceTree, e *Entry, journal *os.File) error {
	t := &Txn{source: s, tree: tree, entry: e, journal: journal}
	if !e.moved {
		if err := t.noteMoved(); err != nil {
			return err
		}
	}
	if err := unlockIndex(tree, &e.Header); err != nil {
		return err
	}
	t.add(line{End: e.end()})
	if err := t.flush(); err != nil {
		return err
	}
	e.State = Committed
	failpoint.At("journal: completed")
	if e.Of != "" {
		return s.dropImages(e.Of)
	}
	return nil
}
