package supervise

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// execution is one command that runs.
type execution struct {
	id      string   // unique among the sandbox's, also of earlier supervisors
	number  int      // unique among those of this supervisor
	session string   // that it is a command of, or the shell of
	shellOf *session // else nil
	command api.Command
	inside  *guest.Exec // nil for a command of a session
	leader  int         // its pid on the host, once there is one
	group   *cgroup.Group
	before  cgroup.Usage      // of the sandbox, when the command was about to start
	refused layer.Refusals    // of the sandbox's quota, at that time
	changes effects.ChangeSet // in the workspace
	denials effects.DenialSet
	begun   time.Time

	kept   *detachedCommand // nil for streams of a client's
	logged []*api.Output    // into the output log, of a detached one that is not kept

	mu     sync.Mutex
	reason api.Reason
	// mountChanges are what it changed in mounts, by their names.
	mountChanges map[string]*effects.ChangeSet
}

// changesIn returns what the command changed in a mount.
func (x *execution) changesIn(mount string) *effects.ChangeSet {
	x.mu.Lock()
	defer x.mu.Unlock()
	set := x.mountChanges[mount]
	if set == nil {
		set = &effects.ChangeSet{}
		if x.mountChanges == nil {
			x.mountChanges = map[string]*effects.ChangeSet{}
		}
		x.mountChanges[mount] = set
	}
	return set
}

// end kills the command with all its descendants, for reason.
func (x *execution) end(reason api.Reason) {
	x.mu.Lock()
	if x.reason == api.ReasonNone {
		x.reason = reason
	}
	x.mu.Unlock()
	x.kill()
}

// kill ends the command and all its descendants.
func (x *execution) kill() {
	if x.group != nil {
		x.group.Kill()
	}
	x.inside.Kill()
}

// signal passes a client's signal on.
func (x *execution) signal(sig unix.Signal) { x.inside.Signal(sig) }

// abandon ends the command because its client has left, unless it is detached.
func (x *execution) abandon() {
	if !x.command.Detached {
		x.end(api.ReasonStopped)
	}
}

// handleExec runs one command for the client at c, who may send signals
// meanwhile and ends the command by leaving.
func (s *supervisor) handleExec(ctx context.Context, c api.Conn, command api.Command, files []*os.File) {
	startCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	caller := &clientConn{stays: command.Detached, giveUp: giveUp}
	go caller.listen(c)
	x, master, err := s.begin(startCtx, command, files)
	api.CloseAll(files...)
	if err != nil {
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	answer := api.Reply{Started: &api.Started{PID: x.inside.HostPID()}}
	if master != nil {
		err = c.Send(answer, master)
		master.Close()
	} else {
		err = c.Send(answer)
	}
	if err != nil && !command.Detached {
		x.end(api.ReasonStopped)
	}
	caller.connect(x)
	exit := s.finish(ctx, x)
	for _, o := range x.logged {
		o.Settle()
	}
	s.endLogged(x, exit, nil)
	_ = c.Send(api.Reply{Exited: &exit}) // the client may have left
}

// begin starts a command and returns its terminal's master if it has one.
func (s *supervisor) begin(ctx context.Context, command api.Command, files []*os.File) (*execution, *os.File, error) {
	x := s.newExecution(command)
	inner := s.inner(command)
	master, err := s.connect(x, &inner, files)
	if err != nil {
		s.endLogged(x, api.Exit{}, err)
		return nil, nil, err
	}
	if command.Detached || command.Kept {
		defer api.CloseAll(inner.Files[:]...)
	}
	// Where processes are counted, one that rests would be one too many.
	inner.ReuseLeader = s.group == nil && s.record.Limits.PIDs == 0 && !command.TTY
	if err := s.launch(ctx, x, inner); err != nil {
		api.CloseAll(master)
		if x.kept != nil {
			api.CloseAll(inner.Files[:]...)
			x.kept.finish(api.Exit{}, err)
		}
		s.endLogged(x, api.Exit{}, err)
		return nil, nil, err
	}
	if command.Timeout > 0 {
		timer := time.AfterFunc(command.Timeout, func() { x.end(api.ReasonTimeout) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	return x, master, nil
}

// newRun returns what stands before the numbers of one supervisor's commands in
// their ids.
func newRun() string {
	var random [4]byte
	rand.Read(random[:]) // it never fails
	return fmt.Sprintf("exec-%x-", random)
}

// newExecution numbers a command.
func (s *supervisor) newExecution(command api.Command) *execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	return &execution{id: s.runID + strconv.Itoa(s.next), number: s.next, command: command, begun: time.Now()}
}

// inner is the command as the guest takes it, without its streams.
func (s *supervisor) inner(command api.Command) guest.Command {
	inner := guest.Command{Argv: command.Argv, Env: s.environment(command.Env), Dir: command.Dir, TTY: -1}
	if inner.Dir == "" {
		inner.Dir = s.record.Workspace
	}
	return inner
}

// launch starts x.
func (s *supervisor) launch(ctx context.Context, x *execution, inner guest.Command) error {
	err := s.enterGroup(x)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.execs[x] = struct{}{}
	s.mu.Unlock()
	s.trimmer.touch()
	x.before, x.refused = s.resourceEvents(), s.stack.Refused()
	x.inside, err = s.guest.Exec(ctx, inner, func(pid int) error { return s.placed(x, pid) })
	if err != nil {
		s.forget(x)
		if errdefs.Is(err, errdefs.Unavailable) && s.isStopping() {
			return errdefs.New(errdefs.NotFound, "exec: the sandbox was stopped meanwhile")
		}
		return startError(err)
	}
	return nil
}

// connect gives the command its streams: ours, a new terminal, the client's
// pipes, or, detached, an empty input and the output log.
func (s *supervisor) connect(x *execution, inner *guest.Command, files []*os.File) (*os.File, error) {
	command := x.command
	switch {
	case command.Kept:
		var err error
		x.kept, err = s.keep(x, inner)
		return nil, err
	case command.TTY:
		master, number, err := s.terminals.open(command.Rows, command.Columns)
		inner.TTY = number
		return master, err
	case command.Detached:
		return nil, s.logStreams(x, inner)
	case len(files) != len(inner.Files):
		return nil, errdefs.New(errdefs.Invalid, "exec: want three pipes, got %d descriptors", len(files))
	}
	for i, f := range files {
		if err := guest.CheckPipe(f); err != nil {
			return nil, err
		}
		inner.Files[i] = f
	}
	return nil, nil
}

// startError tells a command that is not there from a sandbox that is broken.
func startError(err error) error {
	switch {
	case errors.Is(err, guest.ErrNotFound):
		return &api.CommandError{Text: err.Error()}
	case errors.Is(err, guest.ErrNotExecutable):
		return &api.CommandError{Text: err.Error(), NotExecutable: true}
	}
	return err
}

// enterGroup makes the command's own cgroup where the host has any, so that at
// a time-out not even a descendant that hides survives.
func (s *supervisor) enterGroup(x *execution) error {
	if s.group == nil {
		return nil
	}
	group, err := s.group.Sub(fmt.Sprint("exec-", x.number))
	if err != nil {
		return err
	}
	x.group = group
	return nil
}

// placed is called with the command's leader before the command starts.
func (s *supervisor) placed(x *execution, pid int) error {
	x.leader = pid
	if x.shellOf != nil {
		s.owners.AddShell(pid, x, x.shellOf.commandOf)
	} else {
		s.owners.Add(pid, x)
	}
	if x.group == nil {
		return nil
	}
	return x.group.Add(pid)
}

// finish waits for the command, says in the audit log what it was and did, and
// returns how it ended.
func (s *supervisor) finish(ctx context.Context, x *execution) api.Exit {
	end, err := x.inside.Wait(ctx)
	exit := api.Exit{
		Code: end.Code, Signal: end.Signal, Duration: time.Since(x.begun),
		UserTime: end.UserTime, SystemTime: end.SystemTime, MaxRSSBytes: end.MaxRSSBytes,
	}
	if err != nil {
		s.log.Warn("exec: lost its end", "err", err)
		exit.Signal = int(unix.SIGKILL)
	}
	s.guest.Settle(settlePatience) // the command's refusals are recorded before its end
	if s.egress != nil {
		s.egress.Settle()
	}
	x.mu.Lock()
	exit.Reason = x.reason
	x.mu.Unlock()
	s.auditEnd(x, &exit, err != nil)
	s.forget(x)
	exit.Untouched = s.isUntouched()
	return exit
}

// isUntouched reports whether the delta is known to be empty.
func (s *supervisor) isUntouched() bool {
	untouched, err := s.stack.IsUntouched()
	return untouched && err == nil // else whoever lists the changes sees the error
}

// forget drops what the supervisor keeps of a command. Its group stays while
// background processes live in it; the sandbox's end removes it.
func (s *supervisor) forget(x *execution) {
	s.owners.End(x)
	if x.inside != nil {
		go func() {
			<-x.inside.Done()
			s.owners.Remove(x.leader, x)
		}()
	} else {
		s.owners.Remove(x.leader, x)
	}
	s.mu.Lock()
	delete(s.execs, x)
	s.mu.Unlock()
	s.trimmer.touch()
	if x.group == nil {
		return
	}
	if empty, err := x.group.Empty(); err == nil && empty {
		x.group.Delete()
	}
}

// resourceEvents reads the counters of the sandbox's limits.
func (s *supervisor) resourceEvents() cgroup.Usage {
	if s.usage == nil {
		return cgroup.Usage{}
	}
	u, err := s.usage.Usage()
	if err != nil {
		s.log.Warn("cgroup: usage", "err", err)
	}
	return u
}

// auditEnd writes the events of a command that has ended.
// One that was lost with its sandbox may have been ended by a limit, too.
func (s *supervisor) auditEnd(x *execution, exit *api.Exit, lost bool) {
	before, after := x.before, s.resourceEvents()
	// A shell reports the signal that ended its child in its own exit code.
	killed := exit.Signal == int(unix.SIGKILL) || exit.Code == 128+int(unix.SIGKILL)
	if after.OOMKills > before.OOMKills && killed && exit.Reason == api.ReasonNone {
		exit.Reason = api.ReasonOutOfMemory
	}
	if lost && exit.Reason == api.ReasonNone {
		exit.Reason = api.ReasonStopped
	}
	// Its processes are told of before they get their answers; what they have left
	// behind may be told of still.
	s.concludeViews(x)
	var events []audit.Event
	changed := map[string]effects.Changes{"": x.changes.Take()}
	for _, m := range s.mounts {
		changed[m.name] = x.changesIn(m.name).Take()
	}
	for _, mount := range slices.Sorted(maps.Keys(changed)) {
		if c := changed[mount]; !c.IsEmpty() {
			events = append(events, c.Event(x.id, mount))
		}
	}
	exit.ID, exit.Effects = x.id, effects.Of(&x.denials, changed)
	if after.OOMKills > before.OOMKills {
		events = append(events, audit.ResourceLimitExceeded{
			Exec: x.id, Resource: audit.ResourceMemory,
			Limit: float64(s.record.Limits.MemoryBytes), Count: after.OOMKills - before.OOMKills,
		})
	}
	if after.PIDsMaxHits > before.PIDsMaxHits {
		events = append(events, audit.ResourceLimitExceeded{
			Exec: x.id, Resource: audit.ResourcePIDs,
			Limit: float64(s.record.Limits.PIDs), Count: after.PIDsMaxHits - before.PIDsMaxHits,
		})
	}
	s.append(append(events, s.diskEvents(x)...)...)
	s.appendFirst(x.event(*exit))
}
