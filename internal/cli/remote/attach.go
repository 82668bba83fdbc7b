package remote

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// attached is a backend.Attached. What is sent to a command that has ended
// is lost without an error: Wait tells how it ended.
type attached struct {
	client *Client
	stream grpc.BidiStreamingClient[sandboxv1.AttachRequest, sandboxv1.ExecOutput]
	cancel context.CancelFunc

	talk   *stream.AttachStream
	gaveUp atomic.Int32 // the signal that got through to nobody, 0 for none
}

// Call is a command as a server gets it.
type Call struct {
	SandboxID string
	Argv      []string
	Env       map[string]string
	Remember  map[string]string // as Env, and for the later commands of the sandbox
	Dir       string            // "" for the workspace
	Timeout   time.Duration
	Rows      uint16 // of a terminal of its own; 0: it gets pipes
	Columns   uint16
	// Checkpoint asks for a snapshot before the command.
	Checkpoint bool
}

// attach starts the call for a command.
func (c *Client) attach(ctx context.Context, command Call, detach bool) (*attached, error) {
	ctx, cancel := context.WithCancel(ctx)
	call, err := c.sandboxes.Attach(ctx)
	if err != nil {
		cancel()
		return nil, c.failed(err)
	}
	talk := stream.NewAttachStream(call, startOf(command, detach))
	return &attached{client: c, stream: call, cancel: cancel, talk: talk}, nil
}

// Attach runs a command. When ctx ends, or Wait has returned, so does it.
func (c *Client) Attach(ctx context.Context, command Call) (backend.Attached, error) {
	a, err := c.attach(ctx, command, false)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// startOf says what is to be run.
func startOf(command Call, detach bool) *sandboxv1.AttachRequest {
	start := &sandboxv1.AttachRequest_Start{
		SandboxId: command.SandboxID, Argv: command.Argv, Env: command.Env, Workdir: command.Dir, Detach: detach,
		RememberEnv: command.Remember, Checkpoint: command.Checkpoint,
	}
	if command.Timeout > 0 {
		start.Timeout = durationpb.New(command.Timeout)
	}
	if command.Rows > 0 {
		start.Terminal = stream.WindowSize(command.Rows, command.Columns)
	}
	return &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{Start: start}}
}

// Write sends to the command's standard input. It never fails.
func (a *attached) Write(data []byte) (int, error) {
	a.talk.Input(data)
	return len(data), nil
}

// CloseInput says that nothing more comes on standard input.
func (a *attached) CloseInput() { a.talk.EndInput() }

// Resize tells the command's terminal its new size.
func (a *attached) Resize(rows, columns uint16) { a.talk.Resize(rows, columns) }

// Signal sends the command a signal. One that cannot get past input that nobody
// reads ends the command.
func (a *attached) Signal(s syscall.Signal) {
	if !a.talk.Signal(int32(s)) {
		a.gaveUp.Store(int32(s))
		a.cancel()
	}
}

// Wait copies the command's output until it has ended and tells how. Output
// that cannot be written ends the command.
func (a *attached) Wait(stdout, stderr io.Writer) (backend.Exit, error) {
	defer a.cancel()
	for {
		out, err := a.next(stdout, stderr)
		signal := a.gaveUp.Load()
		switch {
		case err != nil && signal != 0:
			return backend.Exit{Code: api.ExitSignalBase + int(signal)}, nil
		case errors.Is(err, errUnwritten): // as for who writes into a pipe that nobody reads
			return backend.Exit{Code: api.ExitSignalBase + int(syscall.SIGPIPE)}, nil
		case err != nil:
			return backend.Exit{}, err
		case out.ExitCode != nil:
			a.client.kept.add(out)
			return exitOf(out), nil
		}
	}
}

// errUnwritten says that output could not be written.
var errUnwritten = errors.New("output cannot be written")

// next takes a message of the server and writes the output in it.
func (a *attached) next(stdout, stderr io.Writer) (*sandboxv1.ExecOutput, error) {
	out, err := a.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errdefs.New(errdefs.Unavailable, "the server at %s does not say how the command ended", a.client.at)
	case err != nil:
		return nil, a.client.failed(err)
	}
	to := stdout
	if out.Type == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR {
		to = stderr
	}
	if len(out.Data) > 0 {
		if _, err := to.Write(out.Data); err != nil {
			return nil, errUnwritten
		}
	}
	return out, nil
}

func exitOf(last *sandboxv1.ExecOutput) backend.Exit {
	e := wireconv.DecodeEnding(last)
	exit := backend.Exit{Code: e.Code, Conflicts: e.Conflicts, ConflictCount: e.ConflictCount, SyncHeld: e.SyncHeld && e.Effects.ChangedCount > 0}
	for _, d := range e.Effects.Denied {
		if path, err := vpath.ParseText("/" + d.Path); err == nil { // else it is the server's mistake, and no reason to lose the rest
			exit.Refused = append(exit.Refused, audit.PermissionDenied{
				Path: audit.Path(path), Operation: d.Operation, Permission: d.Permission.String(),
				Rule: audit.Text(d.Rule), RuleIndex: d.RuleIndex, RuleSource: audit.Text(vpath.DecodeText(d.Lock)), Count: int(d.Count),
			})
		}
	}
	for _, c := range e.Effects.Changed {
		if path, err := vpath.ParseText("/" + c.Path); err == nil {
			exit.Touched = append(exit.Touched, path)
		}
	}
	return exit
}

// Detach starts a command that goes on without us, its input at its end and its
// output thrown away. If it could not be started, stderr says why and the exit
// code is that of shells.
func (c *Client) Detach(ctx context.Context, command Call, stderr io.Writer) (backend.Exit, error) {
	a, err := c.attach(ctx, command, true)
	if err != nil {
		return backend.Exit{}, err
	}
	defer a.cancel()
	a.CloseInput()
	for {
		out, err := a.next(io.Discard, stderr)
		switch {
		case err != nil:
			return backend.Exit{}, err
		case out.ExecId != "": // it runs
			return backend.Exit{}, nil
		case out.ExitCode != nil:
			a.client.kept.add(out)
			return exitOf(out), nil
		}
	}
}
