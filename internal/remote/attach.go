package remote

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/carry"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
)

// attached is a control.Attached. What is sent to a command that has ended
// is lost without an error: Wait tells how it ended.
type attached struct {
	client *Client
	stream grpc.BidiStreamingClient[sandboxv1.AttachRequest, sandboxv1.ExecOutput]
	cancel context.CancelFunc

	sending  sync.Mutex
	patience time.Duration // of a signal, see signalPatience
	gaveUp   atomic.Int32  // the signal that got through to nobody, 0 for none
}

func newAttached(c *Client, stream grpc.BidiStreamingClient[sandboxv1.AttachRequest, sandboxv1.ExecOutput], cancel context.CancelFunc) *attached {
	return &attached{client: c, stream: stream, cancel: cancel, patience: signalPatience}
}

// Attach runs a command. When ctx ends, or Wait has returned, so does it.
func (c *Client) Attach(ctx context.Context, command control.Command) (control.Attached, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := c.sandboxes.Attach(ctx)
	if err != nil {
		cancel()
		return nil, c.failed(err)
	}
	a := newAttached(c, stream, cancel)
	a.start(command, false)
	return a, nil
}

// start says what is to be run.
func (a *attached) start(command control.Command, detach bool) {
	start := &sandboxv1.AttachRequest_Start{
		SandboxId: command.SandboxID, Argv: command.Argv, Env: command.Env, Workdir: command.Dir, Detach: detach,
	}
	if command.Timeout > 0 {
		start.Timeout = durationpb.New(command.Timeout)
	}
	if command.Rows > 0 {
		start.Terminal = windowSize(command.Rows, command.Columns)
	}
	a.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{Start: start}})
}

func windowSize(rows, columns uint16) *sandboxv1.AttachRequest_WindowSize {
	return &sandboxv1.AttachRequest_WindowSize{Rows: uint32(rows), Columns: uint32(columns)}
}

func (a *attached) send(m *sandboxv1.AttachRequest) {
	a.sending.Lock()
	defer a.sending.Unlock()
	_ = a.stream.Send(m) // a call that has ended tells why at its other end
}

// Write sends to the command's standard input. It never fails.
func (a *attached) Write(data []byte) (int, error) {
	for sent := 0; sent < len(data); {
		n := min(len(data)-sent, carry.Bytes)
		a.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: data[sent : sent+n]}})
		sent += n
	}
	return len(data), nil
}

// CloseInput says that nothing more comes on standard input.
func (a *attached) CloseInput() {
	a.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_StdinEnd{StdinEnd: true}})
}

// Resize tells the command's terminal its new size.
func (a *attached) Resize(rows, columns uint16) {
	a.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: windowSize(rows, columns)}})
}

// signalPatience is how long a signal may wait behind input that the command
// does not read.
const signalPatience = 2 * time.Second

// Signal sends the command a signal. One that cannot get past input that nobody
// reads ends the command.
func (a *attached) Signal(s syscall.Signal) {
	sent := make(chan struct{})
	go func() {
		a.send(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Signal{Signal: int32(s)}})
		close(sent)
	}()
	select {
	case <-sent:
	case <-time.After(a.patience):
		a.gaveUp.Store(int32(s))
		a.cancel()
	}
}

// Wait copies the command's output until it has ended and tells how. Output
// that cannot be written ends the command.
func (a *attached) Wait(stdout, stderr io.Writer) (control.Exit, error) {
	defer a.cancel()
	for {
		out, err := a.next(stdout, stderr)
		signal := a.gaveUp.Load()
		switch {
		case err != nil && signal != 0:
			return control.Exit{Code: exitSignalBase + int(signal)}, nil
		case errors.Is(err, errUnwritten): // as for who writes into a pipe that nobody reads
			return control.Exit{Code: exitSignalBase + int(syscall.SIGPIPE)}, nil
		case err != nil:
			return control.Exit{}, err
		case out.ExitCode != nil:
			return exitOf(out), nil
		}
	}
}

// exitSignalBase is the exit code of shells for a command that a signal ended,
// less the signal's number.
const exitSignalBase = 128

// errUnwritten says that output could not be written.
var errUnwritten = errors.New("output cannot be written")

// next takes a message of the server and writes the output in it.
func (a *attached) next(stdout, stderr io.Writer) (*sandboxv1.ExecOutput, error) {
	out, err := a.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fault.New(fault.Unavailable, "the server at %s does not say how the command ended", a.client.at)
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

func exitOf(last *sandboxv1.ExecOutput) control.Exit {
	return control.Exit{Code: int(*last.ExitCode), Conflicts: last.Conflicts, ConflictCount: last.ConflictCount}
}

// Detach starts a command that goes on without us, its input at its end and its
// output thrown away. If it could not be started, stderr says why and the exit
// code is that of shells.
func (c *Client) Detach(ctx context.Context, command control.Command, stderr io.Writer) (control.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.sandboxes.Attach(ctx)
	if err != nil {
		return control.Exit{}, c.failed(err)
	}
	a := newAttached(c, stream, cancel)
	a.start(command, true)
	a.CloseInput()
	for {
		out, err := a.next(io.Discard, stderr)
		switch {
		case err != nil:
			return control.Exit{}, err
		case out.ExecId != "": // it runs
			return control.Exit{}, nil
		case out.ExitCode != nil:
			return exitOf(out), nil
		}
	}
}
