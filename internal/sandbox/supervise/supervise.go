// Package supervise is one sandbox's process: the supervisor.
//
// A supervisor owns everything that lives while a sandbox runs: the FUSE server of the view, the
// isolated process tree, the cgroup, the audit log's writer. It has its own mount namespace, so
// whatever way it ends, the mount goes with it. (Docker's mounts are in the host's mount namespace,
// where its daemon finds them.) It stays while its starter or a command uses it, or while it is
// told to keep.
//
// Clients reach it by the unix socket "control" in the sandbox's directory, which only its user can
// enter. A connection carries one request; that of an exec lasts as long as the command.
// Descriptors travel inward only, as pipes. Package api has the protocol and its client.
//
// Lock order: trimmer.mu, then supervisor.mu, effects.Owners.mu, session.mu, effects.ChangeSet.mu;
// lockState.mu or asking's, then hosts.mu or grants.mu, then the notes', then supervisor.mu;
// ringBuffer.mu, effects.DenialSet.mu and the output log's are taken alone.
package supervise

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/asking"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/notes"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

// supervisor is the state of this process.
//
// A command that is detached, or that clients may attach to again, writes into ring buffers of the
// supervisor. Clients attach to these by their own pipes, one after another or several at once. A
// detached command is kept after its end until many later ones have ended. What it writes is in the
// sandbox's output log too (package outlog).
//
// Goroutines: one accepts; one per connection, and one more while it has a session's command run;
// one per stream of a detached command and of each client attached to it; one per session; two per
// client that watches the view, of which one listens to it; one per command that has ended and left
// processes behind; one accepts requests for inner sandboxes, and four serve each of these; with a
// board inside, those of an HTTP server; one
// waits for the process tree, one for the starter's lease; timers trim and close idle sessions.
type supervisor struct {
	log    *slog.Logger
	home   *record.Home
	box    *record.Sandbox
	record record.Record
	lock   *record.Lock

	dir       *os.File // the sandbox's directory
	reserved  []vpath.Path
	source    *os.File
	policy    atomic.Pointer[policy.Policy]
	stack     *layer.Stack
	view      *fusefs.FS
	mounts    []*mountView
	binds     []isolate.Mount // the other mounts
	terminals *terminals
	group     *cgroup.Group // nil without limits, and where docker makes one
	// processLimit is what the sandbox's user namespace holds instead of a group.
	processLimit int64
	asksScope    bool  // the starter asks the user manager for a scope, for the group
	usage        meter // counts what limits refuse; nil where nothing does
	auditLog     *audit.Log
	audit        *audit.Writer
	output       *outlog.Writer // of detached commands
	egress       *egress.Egress // nil unless the network has named hosts
	// authority is that of opened connections, nil if none are to be. Of its key only this process
	// and the egress process know.
	authority *authority.Pair
	hosts     hostClock
	grants    clock // also: one change of the rules at a time
	locks     lockState
	messages  messageState
	notes     *notes.Dir
	asks      *asking.Table // nil: a refusal does not wait for an answer
	narrower  innerTable
	process   isolate.Process
	guest     *guest.Conn
	listener  *net.UnixListener

	complaints complaints // of the isolator

	startedAt time.Time
	keptHome  keptHome
	stopping  chan struct{} // closed when it is time to go
	gone      chan struct{} // closed when everything is let go

	owners     effects.Owners[*execution]
	background effects.ChangeSet // of processes whose command has ended

	trimmer  trimmer
	sessions sessionTable
	kept     detachedTable
	watches  watchTable
	absent   func(p vpath.Path, isDir bool) bool // of the source; nil: nothing is
	// recorders have the uses of the workspace's view and those of mounts, nil if uses are not
	// recorded; guarded by mu.
	recorders []*uses.Recorder

	mu      sync.Mutex
	joined  int
	holds   int
	stays   bool // without a command, too
	leaving bool
	// endReason says why the sandbox stops, if it does not because nobody needs it.
	endReason string
	next      int
	runID     string
	execs     map[*execution]struct{}

	answering int       // requests that run a command
	answered  sync.Cond // signaled when one of them is done
}

// meter is a control group.
type meter interface {
	Usage() (cgroup.Usage, error)
	Load() cgroup.Load
}

// Main runs a supervisor: args are the state directory, the sandbox's name and,
// where its starter asks for a scope, launch.ScopeArgument.
// It returns the process's exit code; what went wrong it has told its starter.
func Main(args []string) int {
	ready := os.NewFile(launch.ReadyFD, "ready")
	asksScope := len(args) == 3 && args[2] == launch.ScopeArgument
	if len(args) != 2 && !asksScope {
		report(ready, errdefs.New(errdefs.Internal, "supervisor: bad arguments"))
		return launch.SetUpFailed
	}
	s := &supervisor{
		stopping: make(chan struct{}),
		gone:     make(chan struct{}),
		execs:    map[*execution]struct{}{},
		holds:    1, // the starter's lease
		runID:    newRun(),

		asksScope: asksScope,
	}
	s.answered.L = &s.mu
	if err := s.open(args[0], args[1]); err != nil {
		report(ready, record.ExplainFull(err))
		return launch.SetUpFailed
	}
	if err := s.setUp(context.Background()); err != nil {
		s.logSetUp(err)
		s.tearDown()
		report(ready, lasting(record.ExplainFull(err)))
		return launch.SetUpFailed
	}
	report(ready, nil)
	s.run()
	return 0
}

// lasting keeps a starter from trying again what failed here: Unavailable would
// tell it that another process has the sandbox, and we have it.
func lasting(err error) error {
	if errdefs.Is(err, errdefs.Unavailable) {
		return errdefs.New(errdefs.Precondition, "%w", err)
	}
	return err
}

// report tells the starter how the start went.
func report(ready *os.File, err error) {
	answer := api.Reply{OK: true}
	if err != nil {
		answer = api.Reply{Error: api.FailureOf(err)}
	}
	_ = json.NewEncoder(ready).Encode(answer) // the starter may have ended
	ready.Close()
}

// run serves until nobody needs the sandbox any more, or its process tree has
// ended by itself.
func (s *supervisor) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.trimmer.start(s.busy)
	defer s.trimmer.stop()
	go s.serve(ctx)
	s.serveInner()
	lease := os.NewFile(launch.LeaseFD, "lease")
	go s.watchLease(lease)
	ended := make(chan error, 1)
	go func() { ended <- s.process.Wait() }()
	select {
	case <-s.stopping:
	case err := <-ended:
		s.log.Error("the sandbox ended by itself", "err", err, "complaints", s.complaints.String())
		s.stop()
	case <-s.view.Done():
		s.log.Error("the view's file system ended")
		s.stop()
	case <-s.keptHome.done():
		s.log.Error("the kept home's file system ended")
		s.stop()
	}
	s.tearDown()
	_, _ = lease.Write([]byte{launch.Gone}) // the starter may have ended
}

// setPolicy swaps the rules of the live view.
func (s *supervisor) setPolicy(rules []policy.Rule) error {
	if err := scratch.StoreIn(s.box.Dir()).CheckChange(rules, s.record.Scratch); err != nil {
		return err
	}
	if err := cleangit.StoreIn(s.box.Dir()).CheckChange(rules, s.record.Git); err != nil {
		return err
	}
	p, err := s.compile(rules)
	if err != nil {
		return err
	}
	p = p.WithLocks(s.locks.inForce)
	s.policy.Store(p)
	s.view.SetPolicy(p)
	s.view.Invalidate(s.stack.ForgetSubstitutes()...)
	s.mu.Lock()
	s.record.Rules = rules
	s.mu.Unlock()
	s.describe()
	s.rulesChanged()
	return nil
}

// busy reports whether a command runs.
func (s *supervisor) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.execs) > 0
}

// rules returns the rules in force.
func (s *supervisor) rules() []policy.Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.Rules
}

// logSetUp keeps the reason of a failed start, with what the isolator said.
func (s *supervisor) logSetUp(err error) {
	if s.log != nil {
		s.log.Error("set-up", "err", err, "complaints", s.complaints.String())
	}
}

// awaitScope waits until the starter has asked for a scope, if it does, and
// returns what to add to the reason why a limit does not hold.
func (s *supervisor) awaitScope() string {
	if !s.asksScope {
		return ""
	}
	told := os.NewFile(launch.ScopeFD, "scope")
	defer told.Close()
	reason, err := io.ReadAll(told)
	switch {
	case err != nil:
		return "no scope of the systemd user manager: " + err.Error()
	case len(reason) > 0:
		return "no scope of the systemd user manager: " + string(reason)
	}
	return "tried in a scope of the systemd user manager"
}
