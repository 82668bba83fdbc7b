package board

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Member is a sandbox that runs.
type Member struct {
	Name string
	ID   record.ID
	// Status is its last message in StatusTopic, nil if it has posted none since it started.
	Status *Message
}

// State is who uses a board, and for what.
type State struct {
	Members []Member
	Topics  []Topic // the one that was used last first
}

// State returns the members and the topics.
func (b *Board) State() (s State, err error) {
	if s.Members, err = b.Statuses(); err == nil {
		s.Topics, err = b.Topics()
	}
	return s, err
}

const (
	// maxStatusBytes bounds the file of a member.
	maxStatusBytes = 64 << 10
	statusScratch  = "status.new"
)

// setStatus calls post and stores the status of a member, or does neither: what needs room on the
// disk is done before. The board is locked.
func (b *Board) setStatus(m Message, post func() error) error {
	text, err := json.Marshal(m)
	if err != nil {
		return errdefs.New(errdefs.Internal, "board: %w", err)
	}
	return b.replaceBy(statusScratch, filepath.Join(membersDir, m.Sandbox), text, post)
}

// Statuses returns the sandboxes that run, by their names.
func (b *Board) Statuses() ([]Member, error) {
	names, err := os.ReadDir(filepath.Join(b.dir, membersDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, record.HostError("board", err)
	}
	var list []Member
	for _, entry := range names {
		sb, runs, err := b.running(entry.Name())
		if err != nil {
			return nil, err
		}
		if !runs {
			continue
		}
		m := Member{Name: sb.Name(), ID: sb.ID()}
		var status Message
		text, err := safefs.ReadRegularIn(filepath.Join(b.dir, membersDir), entry.Name(), maxStatusBytes)
		if err == nil && json.Unmarshal(text, &status) == nil && status.ID == m.ID {
			m.Status = &status
		}
		list = append(list, m)
	}
	return list, nil
}

// removeIfUnused removes the board if it has neither members nor messages.
func (b *Board) removeIfUnused() error {
	return b.removeIf(func() (bool, error) {
		has, err := b.hasMessages()
		return !has, err
	})
}

// removeIf removes the board if it has no members and may allows it, which is called while the
// board is locked. Whoever comes at that moment makes another one.
func (b *Board) removeIf(may func() (bool, error)) error {
	_, err := b.lockedIn(func() error {
		names, err := os.ReadDir(filepath.Join(b.dir, membersDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return record.HostError("board", err)
		}
		for _, entry := range names {
			if _, runs, err := b.running(entry.Name()); runs || err != nil {
				return err
			}
		}
		if ok, err := may(); !ok || err != nil {
			return err
		}
		err = nil // a killed process may have left no directory of members
		for _, entry := range names {
			err = errors.Join(err, remove(filepath.Join(b.dir, membersDir, entry.Name())))
		}
		if err != nil {
			return err
		}
		for _, name := range []string{membersDir, locksFile, messagesFile, locksFile + ".new", messagesFile + ".new", statusScratch, mutexFile} {
			err = errors.Join(err, remove(filepath.Join(b.dir, name)))
		}
		// One that comes now has made its own files in it.
		if gone := remove(b.dir); !errors.Is(gone, unix.ENOTEMPTY) {
			err = errors.Join(err, gone)
		}
		return err
	})
	return err
}

func (b *Board) hasMessages() (bool, error) {
	text, err := b.readMessages()
	if err != nil {
		return true, err
	}
	last := lastOf(text)
	return last != nil && !kept.isOld(*last, time.Now()), nil
}

// removeOthers removes other boards that no sandbox uses and that have no messages, or too old
// ones.
func (b *Board) removeOthers() error {
	others, err := all(b.home)
	if err != nil {
		return err
	}
	for _, other := range others {
		info, err := os.Stat(filepath.Join(other.dir, messagesFile))
		if other.dir == b.dir || err == nil && time.Since(info.ModTime()) < kept.age {
			continue
		}
		if err := other.removeIfUnused(); err != nil {
			return err
		}
	}
	return nil
}

// Sweep removes the boards of sources that have no sandbox any more, with their messages. While it
// cannot read all records, it removes nothing: a later call does.
func Sweep(home *record.Home) error {
	boards, err := all(home)
	if err != nil || len(boards) == 0 {
		return err
	}
	used, err := usedBoards(home)
	if err != nil {
		return nil //nolint:nilerr // who uses a damaged record learns of it
	}
	var errs []error
	for _, b := range boards {
		if used[b.dir] {
			continue
		}
		// A sandbox that was made meanwhile may have posted a message, before we had the lock.
		errs = append(errs, b.removeIf(func() (bool, error) {
			used, err := usedBoards(home)
			return err == nil && !used[b.dir], err
		}))
	}
	return errors.Join(errs...)
}

// all returns the boards of the state directory.
func all(home *record.Home) ([]*Board, error) {
	dir := filepath.Join(home.Dir(), boardsDir)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, record.HostError("boards", err)
	}
	var boards []*Board
	for _, entry := range entries {
		boards = append(boards, &Board{home: home, dir: filepath.Join(dir, entry.Name())})
	}
	return boards, nil
}

// usedBoards returns the directories of the boards that sandboxes have, used or not.
func usedBoards(home *record.Home) (map[string]bool, error) {
	sandboxes, err := home.List()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, sb := range sandboxes {
		used[Open(home, &sb.Stored).dir] = true
	}
	return used, nil
}

// remove removes a file or an empty directory that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.HostError("board", err)
	}
	return nil
}
