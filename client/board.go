package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// LockOptions say how paths are locked.
type LockOptions struct {
	Advisory bool          // other sandboxes may still write; only their locks are refused
	For      time.Duration // how long the locks last; 0: until the sandbox stops
	Wait     time.Duration // how long to wait for locks of other sandboxes, at most 1 h; 0: not at all
}

// LockPaths locks paths, with all below them, for a running sandbox. When it returns, each other
// sandbox of the codebase can read them at most. It locks all of them or none. Errors:
// ErrPrecondition if another sandbox has one of them; ErrNotRunning; ErrDenied for a path that the
// sandbox may not write; ErrTimeout after Wait; ErrExhausted; ErrInvalid.
func (s *Sandbox) LockPaths(ctx context.Context, paths []string, o LockOptions) error {
	r := &sandboxv1.LockPathsRequest{SandboxId: s.ID, Paths: lockPaths(paths), Advisory: o.Advisory}
	if o.For != 0 {
		r.LockFor = durationpb.New(o.For)
	}
	if o.Wait != 0 {
		r.Wait = durationpb.New(o.Wait)
	}
	if _, err := s.c.boards.LockPaths(ctx, r); err != nil {
		return s.c.fail(ctx, "lock paths", err)
	}
	return nil
}

// UnlockPaths ends locks of paths, which are as they were locked. Errors: ErrNotFound for a path
// that the sandbox has not locked; ErrNotRunning.
func (s *Sandbox) UnlockPaths(ctx context.Context, paths ...string) error {
	return s.unlock(ctx, &sandboxv1.UnlockPathsRequest{SandboxId: s.ID, Paths: lockPaths(paths)})
}

// UnlockAll ends all locks of the sandbox. Errors: ErrNotRunning.
func (s *Sandbox) UnlockAll(ctx context.Context) error {
	return s.unlock(ctx, &sandboxv1.UnlockPathsRequest{SandboxId: s.ID, All: true})
}

func (s *Sandbox) unlock(ctx context.Context, r *sandboxv1.UnlockPathsRequest) error {
	if _, err := s.c.boards.UnlockPaths(ctx, r); err != nil {
		return s.c.fail(ctx, "unlock paths", err)
	}
	return nil
}

// lockPaths are paths as they are sent. An empty one stays empty, and is an error: an unset
// variable must not lock all.
func lockPaths(paths []string) []string {
	var sent []string
	for _, p := range paths {
		if p != "" {
			p = first(inside(p), "/")
		}
		sent = append(sent, p)
	}
	return sent
}

// PathLock is a lock of a path, or a request that waits.
type PathLock struct {
	Sandbox  string // name of the sandbox that has it
	Path     string // "" for the root
	Own      bool   // it is of this sandbox
	Advisory bool
	Waits    bool // the request waits for locks of others
	Since    time.Time
	Until    time.Time // zero: until its sandbox stops
}

// Locks lists the locks of the codebase. It leaves out what other sandboxes have locked where the
// policy of this one hides the path. Errors: ErrNotRunning.
func (s *Sandbox) Locks(ctx context.Context) ([]PathLock, error) {
	m, err := s.c.boards.ListLocks(ctx, &sandboxv1.ListLocksRequest{SandboxId: s.ID})
	if err != nil {
		return nil, s.c.fail(ctx, "list locks", err)
	}
	var locks []PathLock
	for _, l := range m.Locks {
		locks = append(locks, PathLock{l.Sandbox, vpath.DecodeText(l.Path), l.Own, l.Advisory, l.Waits, timeFrom(l.Since), timeFrom(l.Until)})
	}
	return locks, nil
}

// BoardMessage is a message of a sandbox. All but Topic and Text is set by its supervisor.
type BoardMessage struct {
	Seq       uint64 // higher than that of every earlier message
	Time      time.Time
	Sandbox   string // name
	SandboxID string
	By        string // "agent": an agent that works in the sandbox; "user": whoever controls it
	Topic     string
	Text      string // what the sender wrote: data, which may contain anything
}

func messageFrom(m *sandboxv1.BoardMessage) BoardMessage {
	return BoardMessage{m.GetSeq(), timeFrom(m.GetTime()), m.GetSandbox(), m.GetSandboxId(), m.GetBy(), m.GetTopic(), m.GetText()}
}

// PostMessage posts a message on the board of the codebase and returns its number. A topic of "" is
// "general"; a message in "status" says what the sandbox works on. Errors: ErrInvalid; ErrExhausted
// for a text of more than 4096 bytes, and after too many messages; ErrNotRunning.
func (s *Sandbox) PostMessage(ctx context.Context, topic, text string) (uint64, error) {
	m, err := s.c.boards.PostMessage(ctx, &sandboxv1.PostMessageRequest{SandboxId: s.ID, Topic: topic, Text: text})
	if err != nil {
		return 0, s.c.fail(ctx, "post message", err)
	}
	return m.Seq, nil
}

// messageWait is how long a call waits for a message.
const messageWait = 30 * time.Second

// Messages yields the messages of the board with a number above after, the oldest first; a topic of
// "" stands for all. With follow it goes on with new ones until ctx ends, which yields an error.
// Messages that are no longer kept are left out: their numbers are missing.
func (s *Sandbox) Messages(ctx context.Context, after uint64, topic string, follow bool) iter.Seq2[BoardMessage, error] {
	return func(yield func(BoardMessage, error) bool) {
		for r := (&sandboxv1.ReadMessagesRequest{SandboxId: s.ID, After: after, Topic: topic}); ; {
			m, err := s.c.boards.ReadMessages(ctx, r)
			if err != nil {
				yield(BoardMessage{}, s.c.fail(ctx, "read messages", err))
				return
			}
			for _, sent := range m.Messages {
				if !yield(messageFrom(sent), nil) {
					return
				}
			}
			if len(m.Messages) == 0 && !follow {
				return
			}
			r.After = m.Next
			if follow {
				r.Wait = durationpb.New(messageWait)
			}
		}
	}
}

// Board is which sandboxes of a codebase run, and of what they talk.
type Board struct {
	Members []BoardMember // by their names
	Topics  []BoardTopic  // the one that was used last first
}

// BoardMember is a sandbox that runs.
type BoardMember struct {
	Sandbox   string
	SandboxID string
	Status    *BoardMessage // what it works on; nil: it has not said
}

// BoardTopic is a topic of which messages are kept.
type BoardTopic struct {
	Topic    string
	Messages int
	Last     BoardMessage
}

// Board returns which sandboxes of the codebase run, what they work on, and the topics.
func (s *Sandbox) Board(ctx context.Context) (Board, error) {
	m, err := s.c.boards.GetBoard(ctx, &sandboxv1.GetBoardRequest{SandboxId: s.ID})
	if err != nil {
		return Board{}, s.c.fail(ctx, "get board", err)
	}
	var b Board
	for _, sent := range m.Members {
		member := BoardMember{Sandbox: sent.Sandbox, SandboxID: sent.SandboxId}
		if sent.Status != nil {
			member.Status = new(messageFrom(sent.Status))
		}
		b.Members = append(b.Members, member)
	}
	for _, t := range m.Topics {
		b.Topics = append(b.Topics, BoardTopic{t.Topic, int(t.Messages), messageFrom(t.Last)})
	}
	return b, nil
}
