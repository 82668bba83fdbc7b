package history

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Reversal is the plan to reverse a transaction.
type Reversal struct {
	of        *Entry
	tree      *changes.SourceTree
	images    *os.File
	steps     []Step
	from      []int // the numbers of the steps in the transaction
	Conflicts []Left
	// Move moves the branch of a transaction that has one, by git.
	Move Mover
	// Rest, if not nil, returns what Txn.KeepRest keeps. It is called after the steps.
	Rest func() (iter.Seq[any], error)
}

// Steps returns what the reversal does.
func (r *Reversal) Steps() []Step { return r.steps }

// Close closes the images.
func (r *Reversal) Close() { r.images.Close() }

// PlanReversal checks each path that the transaction changed: what is there now must be what the
// transaction placed. It changes nothing. Close the result after. Errors: Precondition if the
// previous versions are no longer kept; those of the host.
func PlanReversal(tree *changes.SourceTree, of *Entry) (*Reversal, error) {
	if err := of.Load(); err != nil {
		return nil, err
	}
	images, err := os.Open(filepath.Join(of.dir, imagesName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, errdefs.New(errdefs.Precondition, "transaction %s: the previous versions of its files are no longer kept (history.max_bytes_per_source)", of.ID)
	}
	if err != nil {
		return nil, record.HostError("history", err)
	}
	r := &Reversal{of: of, tree: tree, images: images}
	goes, comes := map[vpath.Path]bool{}, map[vpath.Path]bool{}
	for i := range of.Steps {
		s := &of.Steps[i]
		at, err := s.At()
		if err != nil {
			r.Close()
			return nil, err
		}
		goes[at] = !s.Left && s.Before == nil
		comes[at] = !s.Left && s.Before.IsDir()
	}
	for i := range of.Steps {
		if of.Steps[i].Left {
			continue
		}
		if err := r.plan(i, goes, comes); err != nil {
			r.Close()
			return nil, err
		}
	}
	if err := r.planBranch(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// planBranch checks that the branch is where the transaction has moved it.
func (r *Reversal) planBranch() error {
	b := r.of.Branch
	if b == nil {
		return nil
	}
	now, err := ReadCheckedOut(r.tree)
	if err != nil {
		return err
	}
	if why := now.Refuses(b.Ref, b.To); why != "" {
		r.Conflicts = append(r.Conflicts, Left{gitDir + "/HEAD", why})
	}
	return nil
}

// plan plans the reverse of a step. goes are the paths at which nothing remains, comes those that
// become directories.
func (r *Reversal) plan(i int, goes, comes map[vpath.Path]bool) error {
	s := &r.of.Steps[i]
	at, err := s.At()
	if err != nil {
		return err
	}
	step := Step{Path: s.Path, After: s.Before, Moved: s.Moved, Implied: s.Implied}
	why, err := r.look(at, s, &step, goes)
	switch {
	case changes.IsWayGone(err):
		if s.After != nil || !comes[at.Dir()] {
			why = "its directory no longer exists"
		}
	case err != nil:
		return record.HostError("undo "+at.String(), err)
	}
	if why == "" {
		why = r.checkImage(i)
	}
	if why == "" && s.isModeOnly() { // of the file that is there now: no version is kept
		after := *step.Before
		after.Mode = s.Before.Mode
		step.After = &after
	}
	if why != "" {
		r.Conflicts = append(r.Conflicts, Left{at, why})
	}
	if !step.isModeOnly() && step.After != nil {
		after := *step.After // it may become another file: a copy
		after.Dev, after.Ino = 0, 0
		step.After = &after
	}
	r.steps, r.from = append(r.steps, step), append(r.from, i)
	return nil
}

// look sets what is at the path of the step s now, for its reverse. It returns why that is not what
// s has placed, or "".
func (r *Reversal) look(at vpath.Path, s, reverse *Step, goes map[vpath.Path]bool) (why string, err error) {
	err = r.tree.At(at, func(e changes.Entry) error {
		now, err := e.Stat()
		if err != nil {
			return err
		}
		if reverse.Before, err = EntityOf(e, now); err != nil {
			return err
		}
		reverse.Linked = now != nil && now.Nlink > 1 && !record.IsDir(now.Mode)
		switch {
		case !s.After.Matches(e, now) && !s.After.HasContent(e, now) && !s.After.isIndex(e, now):
			why = s.After.differs(now)
		case s.After.isRegular():
			reverse.Before.SHA256, reverse.Before.Index = s.After.SHA256, s.After.Index
		case s.After.IsDir() && !s.Before.IsDir():
			why, err = r.holdsOthers(at, goes)
		}
		return err
	})
	return why, err
}

// differs says what of now is not as a.
func (a *Entity) differs(now *unix.Stat_t) string {
	switch {
	case now == nil:
		return "it was removed since"
	case a == nil:
		return "a " + record.TypeName(now.Mode) + " was made there since"
	case a.Mode&record.TypeBits != now.Mode&record.TypeBits:
		return "it is a " + record.TypeName(now.Mode) + " now"
	case a.isRegular() && a.Size != now.Size:
		return fmt.Sprintf("its content has changed since: %d bytes, now %d", a.Size, now.Size)
	case a.Mode != now.Mode:
		return fmt.Sprintf("its mode has changed since: %04o, now %04o", a.Mode&^record.TypeBits, now.Mode&^record.TypeBits)
	}
	return "it was written to since"
}

// holdsOthers says what a directory contains that does not go with it.
func (r *Reversal) holdsOthers(dir vpath.Path, goes map[vpath.Path]bool) (why string, err error) {
	fd, err := r.tree.OpenDir(dir, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	err = safefs.ReadNames(fd, func(name []byte, _ uint32, _ uint64) error {
		if child := dir.Child(string(name)); !goes[child] && why == "" {
			why = fmt.Sprintf("it contains %s, which was made since", changes.Quote(child))
		}
		return nil
	})
	return why, err
}

// checkImage says why the previous version cannot be restored. A process that had the file open
// can have written to it.
func (r *Reversal) checkImage(i int) string {
	s := &r.of.Steps[i]
	if !s.hasImage() {
		return ""
	}
	var st unix.Stat_t
	err := unix.Fstatat(int(r.images.Fd()), strconv.Itoa(i), &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err != nil:
		return "its previous version is not kept"
	case s.Before.isRegular() && (st.Size != s.Before.Size || st.Mtim != s.Before.Mtime):
		return "a program that had its previous version open has changed that version since"
	}
	return ""
}

// Reverse executes the plan as a transaction and returns its id. The caller holds the lock of the
// source. If a step fails, Reverse restores the source. Errors: Precondition if a path has changed
// since the plan; those of Begin and of the host.
func (s *Source) Reverse(r *Reversal, h Header) (id string, err error) {
	h.Of, h.Branch, h.HasRest = r.of.ID, r.of.Branch.reversed(), r.Rest != nil
	h.Sandbox, h.Name, h.Mount, h.Elsewhere, h.Codebase = r.of.Sandbox, r.of.Name, r.of.Mount, r.of.Elsewhere, r.of.Codebase
	t, err := s.Begin(r.tree, h, r.steps)
	if err != nil {
		return "", err
	}
	m := &mover{tree: r.tree}
	if err = m.run(r.moves(t)); err == nil {
		err = syncTree(r.tree)
	}
	if err == nil {
		failpoint.At("journal: reversed")
		err = t.notePlaced()
	}
	if err == nil && r.Rest != nil {
		err = t.keepRestOf(r)
	}
	if err == nil && h.Branch != nil {
		err = cmp.Or(t.Flush(), t.MoveBranch(r.Move))
	}
	if err != nil {
		return "", errors.Join(reverseError(err), t.giveUp())
	}
	return h.ID, t.Commit(nil)
}

func (t *Txn) keepRestOf(r *Reversal) error {
	rest, err := r.Rest()
	if err == nil {
		_, err = t.KeepRest(rest)
	}
	return err
}

func reverseError(err error) error {
	if errors.Is(err, changes.ErrMoved) {
		return errdefs.New(errdefs.Precondition, "%w: nothing was changed; try again", err)
	}
	return errdefs.New(record.DiskKind(err), "%w: nothing was changed", err)
}

// giveUp rolls the transaction back.
func (t *Txn) giveUp() error {
	left, err := t.Rollback()
	switch {
	case err != nil:
		return errdefs.New(record.DiskKind(err), "%w; the next command on this source restores it", err)
	case len(left) > 0:
		return errdefs.New(errdefs.Precondition, "%s was not restored: %s", changes.Quote(left[0].Path), left[0].Reason)
	}
	return t.source.remove(t.entry.dir)
}

// moves returns the moves of the plan in the transaction t.
func (r *Reversal) moves(t *Txn) []move {
	moves := make([]move, 0, len(r.steps))
	for i := range r.steps {
		s := &r.steps[i]
		at, _ := s.At() // it was read before
		moves = append(moves, move{
			path: at, from: s.Before, to: s.After, modeOnly: s.isModeOnly(), sink: t.Image(i),
			image: changes.Image{Dir: int(r.images.Fd()), Name: strconv.Itoa(r.from[i])},
		})
	}
	return moves
}

// notePlaced records which files the steps have placed.
func (t *Txn) notePlaced() error {
	for i := range t.entry.Steps {
		s := &t.entry.Steps[i]
		if s.After == nil || s.After.IsDir() {
			continue
		}
		at, err := s.At()
		if err != nil {
			return err
		}
		err = t.tree.At(at, func(e changes.Entry) error {
			now, err := e.Stat()
			if err != nil || now == nil {
				return errors.Join(err, changes.ErrMoved)
			}
			after, err := EntityOf(e, now)
			if err == nil {
				after.SHA256, after.Index = s.After.SHA256, s.After.Index
				t.add(line{Placed: &placedLine{i, after}})
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// OpenImage opens what the step of that number replaced or removed, a regular file. Errors: those
// of the host.
func (e *Entry) OpenImage(step int) (*os.File, error) {
	f, err := os.Open(filepath.Join(e.dir, imagesName, strconv.Itoa(step)))
	if err != nil {
		return nil, record.HostError("history", err)
	}
	return f, nil
}

// Find returns the transaction with an id. Errors: NotFound.
func (s *Source) Find(id string) (*Entry, error) {
	entries, err := s.Entries()
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if entries[i].ID == id {
			return &entries[i], nil
		}
	}
	return nil, errdefs.New(errdefs.NotFound, "transaction %s: not in the history", vpath.Escape(id))
}

// IsModeOnly reports whether the step of that number has changed only the mode of a file.
func (e *Entry) IsModeOnly(step int) bool { return e.Steps[step].isModeOnly() }
