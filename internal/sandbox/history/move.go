package history

import (
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// move brings a path of a source from one state to another.
type move struct {
	path     vpath.Path
	from, to *Entity        // nil: nothing is there
	image    changes.Image  // the content of to, unless it is a directory
	sink     *changes.Image // takes the entry that goes, or nil
	modeOnly bool
}

// Left is a path that was not restored.
type Left struct {
	Path   vpath.Path
	Reason string
}

// mover executes moves.
type mover struct {
	tree *changes.SourceTree
	// rollback leaves paths that are not in the state from, and reports those that are not in
	// the state to either. Otherwise such a path is the error changes.ErrMoved.
	rollback bool
	left     []Left
	late     []move // directories that get their mode at the end
}

// run executes moves. Files that go are removed first, so that there is room for the others.
func (m *mover) run(moves []move) error {
	slices.SortFunc(moves, func(a, b move) int { return strings.Compare(string(a.path), string(b.path)) })
	deepestFirst := slices.Clone(moves)
	slices.Reverse(deepestFirst)
	passes := []struct {
		moves []move
		is    func(*move) bool
		do    func(move, changes.Entry, *unix.Stat_t) error
	}{
		{moves, (*move).opensDir, m.chmod},
		{deepestFirst, (*move).removesFile, m.remove},
		{deepestFirst, (*move).removesDir, m.removeDir},
		{moves, (*move).makesDir, m.makeDir},
		{afterDirs(moves), (*move).putsFile, m.put},
		{deepestFirst, (*move).closesDir, m.chmod},
	}
	for _, pass := range passes {
		for _, mv := range pass.moves {
			if !pass.is(&mv) {
				continue
			}
			if err := m.one(mv, pass.do); err != nil {
				return err
			}
			failpoint.At("history: one moved")
		}
	}
	for _, mv := range slices.Backward(m.late) {
		if err := m.one(move{path: mv.path, from: mv.to, to: mv.to}, m.chmod); err != nil {
			return err
		}
	}
	return nil
}

// afterDirs returns the moves as they are when the directories that go are removed.
func afterDirs(moves []move) []move {
	moves = slices.Clone(moves)
	for i := range moves {
		if moves[i].removesDir() {
			moves[i].from = nil
		}
	}
	return moves
}

func (v *move) staysDir() bool { return v.from.IsDir() && v.to.IsDir() }
func (v *move) opensDir() bool {
	return v.staysDir() && v.to.Mode&changes.OwnerBits == changes.OwnerBits
}
func (v *move) closesDir() bool   { return v.staysDir() && !v.opensDir() }
func (v *move) removesFile() bool { return v.from != nil && !v.from.IsDir() && v.to == nil }
func (v *move) removesDir() bool  { return v.from.IsDir() && !v.to.IsDir() }
func (v *move) makesDir() bool    { return v.to.IsDir() && !v.from.IsDir() }
func (v *move) putsFile() bool    { return v.to != nil && !v.to.IsDir() }

// one executes a part of a move, if the path is in the state from.
func (m *mover) one(mv move, do func(move, changes.Entry, *unix.Stat_t) error) error {
	err := m.tree.At(mv.path, func(e changes.Entry) error {
		now, err := e.Stat()
		if err != nil {
			return err
		}
		// A directory is removed before a file takes its place, which is then missing for a moment.
		between := m.rollback && mv.makesDir() && now == nil
		if mv.from.Matches(e, now) || between {
			return do(mv, e.To(mv.sink), now)
		}
		if !m.rollback {
			return changes.ErrMoved
		}
		return m.leave(mv, e, now)
	})
	switch {
	case err == nil:
	case changes.IsWayGone(err) && m.rollback:
		if mv.to != nil {
			m.left = append(m.left, Left{mv.path, "its directory no longer exists"})
		}
		return nil
	case errors.Is(err, changes.ErrMoved) && m.rollback:
		m.leftChanged(mv)
		return nil
	case changes.IsWayGone(err):
		return changes.ErrMoved
	}
	return err
}

// leave leaves a path that is not in the state from. If it is in the state to, only the temporary
// file of a killed process remains to be removed.
func (m *mover) leave(mv move, e changes.Entry, now *unix.Stat_t) error {
	if mv.to.Matches(e, now) {
		return e.RemoveTemp()
	}
	if mv.removesDir() && now == nil {
		return nil
	}
	m.leftChanged(mv)
	return m.keepTemp(mv, e)
}

// leftChanged notes that a path is left, because somebody has changed it.
func (m *mover) leftChanged(mv move) {
	m.left = append(m.left, Left{mv.path, "it has changed since"})
}

// keepTemp moves to the images what a killed process took out of the source, if that is its only
// place.
func (m *mover) keepTemp(mv move, e changes.Entry) error {
	temp, err := e.StatTemp()
	if err != nil || !mv.putsFile() || !mv.isTaken(temp) {
		return err
	}
	hasImage, err := mv.hasImage()
	if err != nil || hasImage {
		return err
	}
	return e.To(&mv.image).TakeTemp()
}

// isTaken reports whether temp, the temporary file or nil, is the file that the step took out of
// the source. The step puts a file.
func (v *move) isTaken(temp *unix.Stat_t) bool {
	return temp != nil && v.to.Ino != 0 && v.to.isSameFile(temp)
}

// hasImage reports whether the image is there.
func (v *move) hasImage() (bool, error) {
	var st unix.Stat_t
	err := unix.Fstatat(v.image.Dir, v.image.Name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil, safefs.IgnoreAbsent(err)
}

func (m *mover) chmod(mv move, e changes.Entry, now *unix.Stat_t) error {
	if now.Mode&record.StickyBits == mv.to.Mode&record.StickyBits {
		return nil
	}
	return e.Chmod(now, mv.to.Mode&record.StickyBits)
}

// remove removes a file. A killed process may have left another version beside it.
func (m *mover) remove(_ move, e changes.Entry, now *unix.Stat_t) error {
	if m.rollback {
		if err := e.RemoveTemp(); err != nil {
			return err
		}
	}
	return e.Remove(now)
}

func (m *mover) removeDir(_ move, e changes.Entry, _ *unix.Stat_t) error {
	return e.RemoveDir()
}

func (m *mover) makeDir(mv move, e changes.Entry, now *unix.Stat_t) error {
	if m.rollback {
		if err := e.RemoveTemp(); err != nil {
			return err
		}
	}
	mode := mv.to.Mode & record.StickyBits
	if err := e.MakeDir(changes.Look{Mode: mode | changes.OwnerBits}, now); err != nil {
		return err
	}
	if mode&changes.OwnerBits != changes.OwnerBits {
		m.late = append(m.late, mv)
	}
	return e.Chown(mv.to.UID, mv.to.GID)
}

// put places a file.
func (m *mover) put(mv move, e changes.Entry, now *unix.Stat_t) error {
	if mv.modeOnly {
		return e.Chmod(now, mv.to.Mode&^uint32(record.TypeBits))
	}
	if m.rollback {
		temp, err := e.StatTemp()
		if err != nil {
			return err
		}
		if mv.isTaken(temp) {
			return e.PutBack(now)
		}
		hasImage, err := mv.hasImage()
		switch {
		case err != nil:
			return err
		case temp != nil && !hasImage && !mv.to.Matches(e, now):
			// It was killed when it had taken out another version than the one that it expected.
			m.leftChanged(mv)
			return e.PutBack(now)
		}
		if err := e.RemoveTemp(); err != nil {
			return err
		}
		if !hasImage {
			return nil // the step was not executed
		}
	}
	return e.PutImage(mv.image, now)
}
