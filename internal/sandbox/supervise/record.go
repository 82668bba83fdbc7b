package supervise

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// ownerOf returns the command of a thread, or nil.
func (s *supervisor) ownerOf(tid int) any { return s.owners.Find(tid) }

// onDenial notes a refusal in the workspace. It is called by fusefs while the process that
// was refused waits, or later for those that were counted.
func (s *supervisor) onDenial(d fusefs.Denial) { s.noteDenial("", s.rules(), d) }

// onChange adds a change to what its command did. It is called by fusefs while
// the process that made the change waits for it.
func (s *supervisor) onChange(c fusefs.Change) {
	set := &s.background
	if x := s.owners.Find(c.PID); x != nil {
		set = &x.changes
	}
	set.Note(c)
	s.watches.note("", c)
}

// onSource tells of a change of the source, but of what is absent from the view
// whatever the source has there.
func (s *supervisor) onSource(c fusefs.Change) {
	if c.Kind == fusefs.Deleted && s.absent != nil && s.absent(c.Path, c.Dir) {
		return
	}
	s.watches.note("", c)
}

// append hands events to the audit log. What cannot be recorded must not go on
// happening: when the queue is full the sandbox is stopped.
func (s *supervisor) append(events ...audit.Event) {
	for _, ev := range events {
		if err := s.audit.Enqueue(ev); err != nil {
			s.log.Error("audit: not taken, so the sandbox stops", "event", ev.Kind(), "err", err)
			s.stop()
		}
	}
}

// appendFirst returns when the event is written: a client hears of an end after
// the log does.
func (s *supervisor) appendFirst(ev audit.Event) {
	ctx, cancel := context.WithTimeout(context.Background(), auditPatience)
	defer cancel()
	if err := s.audit.Append(ctx, ev); err != nil {
		s.log.Error("audit: not written, so the sandbox stops", "event", ev.Kind(), "err", err)
		s.stop()
	}
}

// lastEvents are the end of a sandbox's run.
func (s *supervisor) lastEvents() []audit.Event {
	var events []audit.Event
	if c := s.background.Take(); !c.IsEmpty() {
		events = append(events, c.Event("", ""))
	}
	for _, m := range s.mounts {
		if c := m.background.Take(); !c.IsEmpty() {
			events = append(events, c.Event("", m.name))
		}
	}
	events = append(events, s.lastLocks()...)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(events, audit.SandboxStopped{Reason: audit.Text(s.endReason)})
}

func (x *execution) event(exit api.Exit) audit.CommandExecuted {
	e := audit.CommandExecuted{
		Exec: x.id, Session: x.session, Argv: audit.Texts(x.command.Argv), Dir: audit.Text(x.command.Dir),
		ExitCode: exit.Code, DurationMS: exit.Duration.Milliseconds(),
		CPUUserMS: exit.UserTime.Milliseconds(), CPUSystemMS: exit.SystemTime.Milliseconds(),
		MaxRSSBytes: exit.MaxRSSBytes,
		TimedOut:    exit.Reason == api.ReasonTimeout, OOMKilled: exit.Reason == api.ReasonOutOfMemory,
	}
	if exit.Signal != 0 {
		e.Signal = unix.SignalName(unix.Signal(exit.Signal))
	}
	return e
}

// complaints keeps the beginning of what the isolator and PID 1 say on their
// standard error: a crash names its cause first.
type complaints struct {
	mu   sync.Mutex
	text []byte
}

// maxComplaints bounds it.
const maxComplaints = 4096

func (c *complaints) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, b[:min(len(b), maxComplaints-len(c.text))]...)
	return len(b), nil
}

func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(string(c.text))
}
