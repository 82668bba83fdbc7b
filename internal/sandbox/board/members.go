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

// maxStatusBytes bounds the file of a member.
const maxStatusBytes = 64 << 10

// setStatus stores the status of a member. The board is locked.
func (b *Board) setStatus(m Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return errdefs.New(errdefs.Internal, "board: %w", err)
	}
	const scratch = "status.new"
	if err := b.write(scratch, text); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(b.dir, scratch), filepath.Join(b.dir, membersDir, m.Sandbox)); err != nil {
		return record.HostError("board", err)
	}
	return nil
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

// removeIfUnused removes the board if it has neither members nor messages. Whoever comes at that
// moment makes another one.
func (b *Board) removeIfUnused() error {
	_, err := b.lockedIn(os.O_RDWR, func() error {
		names, err := os.ReadDir(filepath.Join(b.dir, membersDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return record.HostError("board", err)
		}
		for _, entry := range names {
			if _, runs, err := b.running(entry.Name()); runs || err != nil {
				return err
			}
		}
		if used, err := b.hasMessages(); used || err != nil {
			return err
		}
		for _, entry := range names {
			err = errors.Join(err, remove(filepath.Join(b.dir, membersDir, entry.Name())))
		}
		if err != nil {
			return err
		}
		for _, name := range []string{membersDir, locksFile, messagesFile, locksFile + ".new", messagesFile + ".new", "status.new", mutexFile} {
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

// removeOthers removes boards whose messages are too old and that no sandbox uses.
func (b *Board) removeOthers() error {
	boards := filepath.Dir(b.dir)
	names, err := os.ReadDir(boards)
	if err != nil {
		return record.HostError("board", err)
	}
	for _, entry := range names {
		other := &Board{home: b.home, dir: filepath.Join(boards, entry.Name())}
		info, err := os.Stat(filepath.Join(other.dir, messagesFile))
		if other.dir == b.dir || err != nil || time.Since(info.ModTime()) < kept.age {
			continue
		}
		if err := other.removeIfUnused(); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file or an empty directory that may be gone.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.HostError("board", err)
	}
	return nil
}
