package service

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// Exec runs a command and returns what it wrote.
func (c *sandboxServer) Exec(ctx context.Context, r *sandboxv1.ExecRequest) (*sandboxv1.ExecResult, error) {
	job, err := c.service.newExec(ctx, r)
	if err != nil {
		return nil, neverStarted(err)
	}
	return c.service.collect(ctx, job)
}

// ExecStream runs a command and sends what it writes.
func (c *sandboxServer) ExecStream(r *sandboxv1.ExecRequest, to sandboxv1.SandboxService_ExecStreamServer) error {
	job, err := c.service.newExec(to.Context(), r)
	if err != nil {
		return neverStarted(err)
	}
	return c.service.stream(to.Context(), job, to)
}

// job is a command that a client has asked for.
type job struct {
	sandbox *record.Sandbox
	client  *api.Client
	timeout time.Duration
	detach  bool // it continues when the client disconnects
	named   bool // its id is sent before its output
	resumed bool // it was started by an earlier call
	// checkpoint is the command before which a snapshot is taken; nil: none is.
	checkpoint []string
	gone       error // for a supervisor that is gone, or does not know the command
	// begun, unless nil, is called when it runs: with its id, if its streams are kept, and how many
	// bytes of its output are no longer kept.
	begun func(execID string, lost int64)
	// run runs it with pipes as its output and returns when it has ended.
	run func(ctx context.Context, stdout, stderr *os.File) (api.Exit, error)
}

// newExec checks a request.
func (s *Service) newExec(ctx context.Context, m *sandboxv1.ExecRequest) (*job, error) {
	r, err := wireconv.DecodeExec(m)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	if err := checkCommand(r.Command); err != nil {
		return nil, err
	}
	if len(r.Command) > maxArgumentBytes {
		return nil, errdefs.New(errdefs.Invalid, "command: longer than %d bytes", maxArgumentBytes)
	}
	env, err := environment(sb, r.Env)
	if err != nil {
		return nil, err
	}
	dir, err := workDir(sb, r.Dir)
	if err != nil {
		return nil, err
	}
	timeout, err := s.timeout(r.Timeout, s.config.Runtime.DefaultTimeout)
	if err != nil {
		return nil, err
	}
	command := api.Command{
		Argv: []string{"/bin/sh", "-c", r.Command}, Env: env, Dir: dir, Timeout: timeout,
		Detached: r.Detach, Kept: r.Detach, NoInput: len(r.Stdin) == 0,
	}
	j := &job{sandbox: sb, client: api.At(sb.Dir()), timeout: timeout, detach: r.Detach, named: r.Detach, gone: notRunning(sb)}
	if r.Checkpoint {
		j.checkpoint = []string{r.Command}
	}
	j.run = func(ctx context.Context, stdout, stderr *os.File) (api.Exit, error) {
		return j.execute(ctx, command, r.Stdin, stdout, stderr)
	}
	return j, nil
}

// maxArgumentBytes limits an argument and a variable: the kernel's MAX_ARG_STRLEN (execve(2))
// without the NUL.
const maxArgumentBytes = 32*4096 - 1

func checkCommand(command string) error {
	if strings.ContainsRune(command, 0) {
		return errdefs.New(errdefs.Invalid, "command: contains a NUL")
	}
	return nil
}

// timeout is how long a command may run, standard if the request leaves it open; 0: no limit.
func (s *Service) timeout(asked, standard time.Duration) (time.Duration, error) {
	most := s.config.Runtime.MaxTimeout
	t := cmp.Or(asked, standard)
	if most > 0 && (t > most || t == 0) {
		return 0, errdefs.New(errdefs.Invalid, "timeout: %s is longer than runtime.max_timeout %s", t, most)
	}
	return t, nil
}

// workDir returns the working directory of a command; a relative one is below the workspace.
func workDir(sb *record.Sandbox, dir string) (string, error) {
	switch {
	case strings.ContainsRune(dir, 0):
		return "", errdefs.New(errdefs.Invalid, "workdir: contains a NUL")
	case len(dir) >= unix.PathMax:
		return "", errdefs.New(errdefs.Invalid, "workdir: longer than %d bytes", unix.PathMax-1)
	case slices.Contains(strings.Split(dir, "/"), ".."):
		return "", errdefs.New(errdefs.Invalid, `workdir: ".." is not allowed`)
	case dir == "" || path.IsAbs(dir):
		return dir, nil
	}
	return path.Join(sb.Record().Workspace, dir), nil
}

// begins reports that the job runs.
func (j *job) begins(execID string, lost int64) {
	if j.begun != nil {
		j.begun(execID, lost)
	}
}

// execute runs a command with pipes as its streams. The command ends with ctx, unless it is
// detached.
func (j *job) execute(ctx context.Context, command api.Command, input []byte, stdout, stderr *os.File) (api.Exit, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return api.Exit{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	defer ours.Close()
	running, err := j.exec(ctx, command, theirs, stdout, stderr)
	theirs.Close()
	if err != nil {
		return api.Exit{}, err
	}
	j.begins(running.ID, running.LostBytes)
	go func() {
		_, _ = ours.Write(input) // fails if the command closes its input
		ours.Close()
		if command.Kept && !command.NoInput {
			_ = running.EndInput() // it may have ended
		}
	}()
	return running.Wait(ctx)
}

// exec starts a command. With Invalid the supervisor reports that nothing has run; after another
// error the command may have run.
func (j *job) exec(ctx context.Context, command api.Command, files ...*os.File) (*api.Running, error) {
	running, err := j.client.Exec(ctx, command, files...)
	if errdefs.Is(err, errdefs.Invalid) { // everything else was checked before
		err = neverStarted(errdefs.New(errdefs.Invalid, "workdir: %w", err))
	}
	return running, err
}

// ended is the result of a job.
type ended struct {
	exit      int32
	took      time.Duration
	conflicts []vpath.Path
	held      bool // the sync is held: the changes wait for Apply
	execID    string
	effects   api.Effects
	keep      *wireconv.Keep
}

// perform runs a job, writes its output, and syncs its changes. A command that could not be started
// has the exit code that a shell would give.
func (s *Service) perform(ctx context.Context, j *job, stdout, stderr io.Writer) (ended, error) {
	if !j.resumed {
		leave, err := s.enterExec(ctx, j.sandbox)
		if err != nil {
			return ended{}, neverStarted(err)
		}
		defer leave()
		s.giveSecretsAgain(ctx, j)
	}
	done, err := s.holdFor(ctx, j.sandbox)
	if err != nil {
		return ended{}, err
	}
	defer done()
	if err := s.takeCheckpoint(ctx, j); err != nil {
		return ended{}, neverStarted(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return ended{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	defer outR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		outW.Close()
		return ended{}, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
	}
	defer errR.Close()
	out, errs := api.CopyOutput(stdout, outR), api.CopyOutput(stderr, errR)
	began := time.Now()
	exit, err := j.run(ctx, outW, errW)
	err = s.whyLost(ctx, j, err)
	outW.Close()
	errW.Close()
	out.Finish()
	errs.Finish()
	e := ended{took: exit.Duration, execID: exit.ID, effects: exit.Effects}
	if !mayKnowPolicy(ctx) {
		e.effects = withoutRules(e.effects)
	}
	if e.exit, err = exitOf(j, exit, err, stderr); e.took == 0 {
		e.took = time.Since(began)
	}
	e.keep = s.keepAfter(context.WithoutCancel(ctx), j.sandbox)
	if exit.Untouched { // the workspace
		return e, err
	}
	failpoint.At("exec: ended")
	conflicts, syncErr := s.syncAfter(context.WithoutCancel(ctx), j)
	e.conflicts = conflicts
	held, heldErr := j.sandbox.IsSyncHeld()
	e.held = held
	return e, cmp.Or(err, syncErr, heldErr)
}

// whyLost explains the loss of a supervisor's connection: if the sandbox is no longer running, it
// returns that error instead.
func (s *Service) whyLost(ctx context.Context, j *job, err error) error {
	if !errdefs.Is(err, errdefs.Unavailable) {
		return err
	}
	if _, ended := s.running(context.WithoutCancel(ctx), j.sandbox); errdefs.Is(ended, errdefs.Precondition) {
		return ended
	}
	return err
}

// asCommandError reports whether a command could not be started although the sandbox works.
func asCommandError(err error) (*api.CommandError, bool) {
	return errors.AsType[*api.CommandError](err)
}

// exitOf returns the exit code of a job, or the error of its call.
func exitOf(j *job, exit api.Exit, err error, stderr io.Writer) (int32, error) {
	notStarted, isNotStarted := asCommandError(err)
	switch {
	case isNotStarted:
		_, _ = io.WriteString(stderr, notStarted.Text+"\n") // fails if the client has disconnected
		return int32(notStarted.ExitCode()), nil
	case errdefs.Is(err, errdefs.NotFound):
		return 0, j.gone
	case err != nil:
		return 0, err
	case exit.Reason == api.ReasonTimeout && exit.SessionClosed:
		return 0, errdefs.New(errdefs.Deadline, "command timed out after %s; its session was closed, because the shell did not return", j.timeout)
	case exit.Reason == api.ReasonTimeout:
		return 0, errdefs.New(errdefs.Deadline, "command timed out after %s", j.timeout)
	case exit.Reason == api.ReasonStopped:
		return 0, withStatus("stopped", errdefs.New(errdefs.Precondition, "sandbox %s: sandbox is not running: it was stopped while the command was running", j.sandbox.ID()))
	case exit.Reason == api.ReasonClosed:
		closed := errdefs.New(errdefs.Precondition, "sandbox %s: session is closed: it was closed while the command was running", j.sandbox.ID())
		return 0, errdefs.WithReason(closed, errdefs.SessionClosed)
	}
	return int32(exit.ExitCode()), nil
}
