package supervise

import (
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/boardsocket"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// How often a sandbox may post: so many messages at once, and then one each postPause. Agents and
// the user do not share that.
const (
	postBurst = 30
	postPause = time.Second
)

// messageState is what this process has of the messages of the board.
type messageState struct {
	posts  map[board.Sender]*boardsocket.Bucket
	inside *boardsocket.Server // nil unless the record has a board inside
}

// serveBoard makes the socket inside. No command runs yet.
func (s *supervisor) serveBoard() error {
	s.messages.posts = map[board.Sender]*boardsocket.Bucket{
		board.ByAgent: boardsocket.NewBucket(postBurst, postPause),
		board.ByUser:  boardsocket.NewBucket(postBurst, postPause),
	}
	if !s.record.Board {
		return nil
	}
	l, err := boardsocket.Listen(s.notes.At(), isolate.BoardSocket)
	if err != nil {
		return err
	}
	s.messages.inside = boardsocket.Serve(l, boardsocket.Options{
		Admit: s.checkPeer, Workspace: s.record.Workspace, Self: s.locks.self, Board: s.locks.board,
		Locks: s.shownLocks, Lock: s.lockPaths, Unlock: s.unlock, Post: s.postMessage, Log: s.log,
	})
	return nil
}

// endBoard ends the requests of programs inside.
func (s *supervisor) endBoard() {
	if s.messages.inside != nil {
		s.warn("board: end", within(letGoPatience, s.messages.inside.Close))
	}
}

// postMessage posts a message of this sandbox. Errors: those of board.Board.Post; Exhausted after
// too many.
func (s *supervisor) postMessage(d board.Draft) (board.Message, error) {
	posts := s.messages.posts[d.By]
	if posts == nil {
		return board.Message{}, errdefs.New(errdefs.Invalid, "message: unknown sender %q", d.By)
	}
	if !posts.Take(time.Now()) {
		return board.Message{}, errdefs.New(errdefs.Exhausted, "message: the sandbox %s has posted %d at once: wait a second for each other one", s.record.Name, postBurst)
	}
	m, err := s.locks.board.Post(s.locks.self, d)
	if err == nil {
		s.append(audit.MessagePosted{Seq: m.Seq, By: string(m.By), Topic: m.Topic, Bytes: len(m.Text)})
	}
	return m, err
}

// shownLocks lists the locks that this sandbox may know of.
func (s *supervisor) shownLocks() ([]board.Entry, error) {
	t, err := s.locks.board.Locks()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(t.Entries(s.locks.self), func(l board.Entry) bool {
		p, err := vpath.ParseText(l.Path)
		return err != nil || !l.Own && !s.shows(p)
	}), nil
}

// shows reports whether the sandbox can know of a path of the source.
func (s *supervisor) shows(p vpath.Path) bool {
	if s.absent != nil && (s.absent(p, false) || s.absent(p, true)) {
		return false
	}
	return s.policy.Load().Decide(p).ForDir() != policy.None
}
