// Package supervise is one sandbox's process: the supervisor and its clients.
//
// A supervisor owns everything that lives while a sandbox runs: the FUSE
// server of the view, the isolated process tree, the cgroup, the audit log's
// writer. It has a mount namespace of its own, so whatever way it ends, the
// mount goes with it and no other sandbox notices. It stays while somebody
// uses it, its starter or a command, or while it is told to keep. Docker's
// mounts are in the host's mount namespace, where its daemon finds them.
//
// Clients reach it by the unix socket "control" in the sandbox's directory,
// which only its user can enter. A connection carries one request; that of an
// exec lasts as long as the command. Descriptors travel inward only as pipes.
//
// A command whose streams are kept writes into spools of the supervisor's, to
// which clients attach, one after another or several at once, by pipes of
// theirs; a detached one is kept when it has ended, too, until many others have.
// What detached commands write is in the sandbox's output log, kept or not (package outlog).
//
// A session is a shell that runs one command after another (package shell). It
// lives as long as the sandbox runs, whether clients do or not, until it is
// closed or its shell ends; all that it started ends with it.
//
// Goroutines: one accepts, one per connection and one more while it has a
// session's command run, one per stream of a detached or kept command and of
// each client attached to it, one per session, one per client that watches the view
// and one that hears it, one per command that has ended and left processes behind, one waits for the process tree, one for the starter's
// lease, and timers', which trim and close idle sessions. Lock order: trimmer.mu,
// then supervisor.mu, then attribution.mu, then session.mu, then changeSet.mu;
// spool.mu, denialSet.mu and the output log's are taken alone.
package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/cgroup"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/fusefs"
	"github.com/agentfense/agentfense/internal/guest"
	"github.com/agentfense/agentfense/internal/isolate"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/outlog"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// supervisor is the state of this process.
type supervisor struct {
	log    *slog.Logger
	home   *sandbox.Home
	box    *sandbox.Sandbox
	record sandbox.Record
	lock   *sandbox.Lock

	dir       *os.File // the sandbox's directory
	reserved  []vpath.Path
	source    *os.File
	policy    atomic.Pointer[policy.Policy]
	stack     *layer.Stack
	view      *fusefs.FS
	terminals *terminals
	group     *cgroup.Group // nil without limits, and where docker makes one
	// processLimit is what the sandbox's user namespace holds instead of a group.
	processLimit int64
	asksScope    bool  // the starter asks the user manager for a scope, for the group
	usage        meter // counts what limits refuse; nil where nothing does
	auditLog     *audit.Log
	audit        *audit.Writer
	output       *outlog.Writer // of detached commands
	process      isolate.Process
	guest        *guest.Conn
	listener     *net.UnixListener

	complaints complaints // of the isolator

	startedAt time.Time
	keptHome  string        // on the host, "" for none
	stopping  chan struct{} // closed when it is time to go
	gone      chan struct{} // closed when everything is let go

	attribution attribution
	background  changeSet // of processes whose command has ended

	trimmer  trimmer
	sessions sessionTable
	kept     keptTable
	watches  watchTable
	absent   func(p vpath.Path, isDir bool) bool // of the source; nil: nothing is

	mu      sync.Mutex
	joined  int
	holds   int
	stays   bool // without a command, too
	leaving bool
	next    int
	runID   string
	execs   map[*execution]struct{}
}

// meter is a control group.
type meter interface {
	Usage() (cgroup.Usage, error)
	Load() cgroup.Load
}

// setUpFailed is the exit code of a supervisor that has told its starter why
// it did not start, and has taken down what it had built.
const setUpFailed = 1

// Main runs a supervisor: args are the state directory, the sandbox's name and,
// where its starter asks for a scope, scopeArgument.
// It returns the process's exit code; what went wrong it has told its starter.
func Main(args []string) int {
	ready := os.NewFile(readyFD, "ready")
	asksScope := len(args) == 3 && args[2] == scopeArgument
	if len(args) != 2 && !asksScope {
		report(ready, fault.New(fault.Internal, "supervisor: bad arguments"))
		return setUpFailed
	}
	s := &supervisor{
		stopping: make(chan struct{}),
		gone:     make(chan struct{}),
		execs:    map[*execution]struct{}{},
		holds:    1, // the starter's lease
		runID:    newRun(),

		asksScope: asksScope,
	}
	if err := s.open(args[0], args[1]); err != nil {
		report(ready, explainFull(err))
		return setUpFailed
	}
	if err := s.setUp(context.Background()); err != nil {
		s.logSetUp(err)
		s.tearDown()
		report(ready, lasting(explainFull(err)))
		return setUpFailed
	}
	report(ready, nil)
	s.run()
	return 0
}

// explainFull says of an error that the disk is full what frees it.
func explainFull(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	return fault.New(fault.Exhausted, "%w: the disk of the state directory is full; "+
		"free it by agentfense apply, agentfense discard or agentfense rm of a sandbox", err)
}

// lasting keeps a starter from trying again what failed here: Unavailable would
// tell it that another process has the sandbox, and we have it.
func lasting(err error) error {
	if fault.Is(err, fault.Unavailable) {
		return fault.New(fault.Precondition, "%w", err)
	}
	return err
}

// report tells the starter how the start went.
func report(ready *os.File, err error) {
	answer := reply{OK: true}
	if err != nil {
		answer = reply{Error: failureOf(err)}
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
	go s.watchLease(os.NewFile(leaseFD, "lease"))
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
	}
	s.tearDown()
}

// setPolicy swaps the rules of the live view.
func (s *supervisor) setPolicy(rules []policy.Rule) error {
	p, err := policy.Compile(rules, policy.Options{Reserved: s.reserved})
	if err != nil {
		return err
	}
	s.policy.Store(p)
	s.view.SetPolicy(p)
	s.view.Invalidate(s.stack.ForgetStandIns()...)
	s.mu.Lock()
	s.record.Rules = rules
	s.mu.Unlock()
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

// drop forgets entries of the delta, shows the source there, and returns the
// paths that were written to since.
func (s *supervisor) drop(versions []sandbox.Version) ([]vpath.Path, error) {
	before := s.states(versions)
	stale, err := sandbox.DropVersions(s.stack, versions)
	paths := make([]vpath.Path, 0, len(versions))
	for _, v := range versions {
		p, pathErr := v.At()
		if pathErr != nil {
			return stale, errors.Join(err, pathErr)
		}
		paths = append(paths, p)
	}
	s.view.Invalidate(paths...)
	s.tellDropped(before)
	return stale, err
}
