package client

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// Signal is the number of a Linux signal (signal(7)), on every system of the client.
type Signal int

// Signals that end a program, or ask it to end.
const (
	SIGHUP  Signal = 1
	SIGINT  Signal = 2
	SIGQUIT Signal = 3
	SIGKILL Signal = 9
	SIGTERM Signal = 15
)

// AttachedExec is a program in a sandbox, with its streams. The caller must call Wait or Close. The
// end of the context of Attach or Resume ends the program, unless it is detached.
type AttachedExec struct {
	// ID identifies it for Resume, if it is detached.
	ExecID string
	// Stdin is its standard input; closing it sends end of file, or Ctrl-D on a terminal. Input for
	// a program that has ended is dropped without an error: Wait returns how it ended.
	Stdin io.WriteCloser
	// Stdout and Stderr are its output, nil with WithStdout or WithStderr. The program waits when
	// 256 KiB of one of them have not been read.
	Stdout, Stderr io.Reader
	// LostBytes is the number of output bytes before the first byte of Stdout and Stderr that are
	// no longer kept; 0 except for Resume.
	LostBytes int64

	c       *Client
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stream  grpc.BidiStreamingClient[sandboxv1.AttachRequest, sandboxv1.ExecOutput]
	started time.Time
	program *stream.AttachStream
	outputs [2]*output    // standard output, standard error
	ended   chan struct{} // closed when result and err are set
	result  *ExecResult
	err     error
}

// Attach runs a program, looked up in PATH, with its arguments, and returns when it runs. Errors:
// ErrInvalid; ErrNotRunning. If the program is not found, standard error has a message, and the
// exit code is 127.
func (s *Sandbox) Attach(ctx context.Context, argv []string, options ...AttachOption) (*AttachedExec, error) {
	return s.attach(ctx, argv, collect(options))
}

func (s *Sandbox) attach(ctx context.Context, argv []string, o *settings) (*AttachedExec, error) {
	start := &sandboxv1.AttachRequest_Start{
		SandboxId: s.ID, Argv: argv, Env: o.env, Workdir: o.workdir, Timeout: span(o.timeout), Detach: o.detach, Checkpoint: o.checkpoint,
	}
	if o.terminal {
		start.Terminal = stream.WindowSize(o.rows, o.columns)
	}
	return s.c.open(ctx, &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{Start: start}}, o)
}

// Resume reconnects to a detached command: to its input, if that is open, and to its output, as far
// as it is kept, from the beginning or after WithOffsets. Errors: ErrNotFound if the command is no
// longer kept; ErrNotRunning.
func (s *Sandbox) Resume(ctx context.Context, execID string, options ...ResumeOption) (*AttachedExec, error) {
	o := collect(options)
	resume := &sandboxv1.AttachRequest_Resume{SandboxId: s.ID, ExecId: execID, StdoutOffset: o.stdoutFrom, StderrOffset: o.stderrFrom}
	return s.c.open(ctx, &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resume_{Resume: resume}}, o)
}

// open starts the call and waits for its first answer.
func (c *Client) open(ctx context.Context, first *sandboxv1.AttachRequest, o *settings) (*AttachedExec, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	call, err := c.sandboxes.Attach(ctx)
	x := &AttachedExec{c: c, ctx: ctx, cancel: cancel, stream: call, started: time.Now(), ended: make(chan struct{})}
	var answer *sandboxv1.ExecOutput
	if err == nil {
		x.program = stream.NewAttachStream(call, first)
		answer, err = firstAnswer(answerPatience, cancel, call.Recv)
	}
	if err != nil {
		defer cancel(nil)
		return nil, x.failed(ended(err))
	}
	x.ExecID, x.LostBytes = answer.ExecId, answer.LostBytes
	x.Stdin = input{x}
	x.outputs = [2]*output{newOutput(o.stdout, o.stdoutFrom), newOutput(o.stderr, o.stderrFrom)}
	if o.stdout == nil {
		x.Stdout = x.outputs[0].pipe
	}
	if o.stderr == nil {
		x.Stderr = x.outputs[1].pipe
	}
	if o.stdin != nil {
		go x.feed(o.stdin)
	}
	go x.pump(answer)
	return x, nil
}

// ended returns the error of a stream that ended too early.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server did not send how the command ended")
	}
	return err
}

// output is the destination of a stream: a writer, or a pipe to the reader.
type output struct {
	to      io.Writer
	pipe    *stream.Pipe
	from    int64
	written atomic.Int64
}

func newOutput(to io.Writer, from int64) *output {
	o := &output{to: to, from: from}
	if to == nil {
		o.pipe = stream.NewPipe()
		o.to = o.pipe
	}
	return o
}

// offset is the number of bytes that were delivered.
func (o *output) offset() int64 {
	if o.pipe != nil {
		return o.from + o.pipe.Delivered()
	}
	return o.from + o.written.Load()
}

// Offsets returns the number of bytes of each stream that were delivered, from the beginning of the
// output: the arguments of WithOffsets to continue after them.
func (x *AttachedExec) Offsets() (stdout, stderr int64) {
	return x.outputs[0].offset(), x.outputs[1].offset()
}

// pump copies the output until the program has ended.
func (x *AttachedExec) pump(answer *sandboxv1.ExecOutput) {
	defer close(x.ended)
	defer x.cancel(nil)
	stop := context.AfterFunc(x.ctx, func() { x.finish(x.ctx.Err()) }) // a writer or reader may block
	defer stop()
	x.result, x.err = x.copyOutput(answer)
	if x.err != nil {
		x.finish(x.err)
		return
	}
	x.finish(io.EOF)
}

func (x *AttachedExec) finish(why error) {
	for _, o := range x.outputs {
		if o.pipe != nil {
			o.pipe.Finish(why)
		}
	}
}

func (x *AttachedExec) copyOutput(answer *sandboxv1.ExecOutput) (*ExecResult, error) {
	for {
		if err := x.deliver(answer); err != nil {
			return nil, err
		}
		if answer.ExitCode != nil {
			result := endOf(answer)
			result.Duration = time.Since(x.started)
			return result, nil
		}
		var err error
		if answer, err = x.stream.Recv(); err != nil {
			return nil, x.failed(ended(err))
		}
	}
}

func (x *AttachedExec) deliver(answer *sandboxv1.ExecOutput) error {
	if len(answer.Data) == 0 {
		return nil
	}
	o := x.outputs[0]
	if answer.Type == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR {
		o = x.outputs[1]
	}
	n, err := o.to.Write(answer.Data)
	o.written.Add(int64(n))
	switch {
	case err == nil:
		return nil
	case x.ctx.Err() != nil:
		return x.failed(err)
	}
	return failure("attach", err.Error(), err)
}

// failed returns why the call ended.
func (x *AttachedExec) failed(err error) error { return x.c.fail(x.ctx, "attach", err) }

// feed sends the content of a reader as the standard input.
func (x *AttachedExec) feed(from io.Reader) {
	_, err := io.CopyBuffer(x.Stdin, from, make([]byte, stream.Bytes))
	if err != nil { // the program would take a part of the input for all of it
		x.cancel(failure("attach", "standard input: "+err.Error(), err))
		return
	}
	x.Stdin.Close()
}

// input is AttachedExec.Stdin.
type input struct{ x *AttachedExec }

// Write sends all of b. Errors: io.ErrClosedPipe if the program has ended.
func (i input) Write(b []byte) (int, error) {
	if i.x.ctx.Err() != nil {
		return 0, io.ErrClosedPipe
	}
	i.x.program.Input(b)
	return len(b), nil
}

// Close ends the input.
func (i input) Close() error {
	i.x.program.EndInput()
	return nil
}

// Resize sets the size of the program's terminal.
func (x *AttachedExec) Resize(rows, columns uint16) { x.program.Resize(rows, columns) }

// Signal sends a signal. If it cannot be sent because the program does not read its input, the
// program is ended.
func (x *AttachedExec) Signal(s Signal) {
	if !x.program.Signal(int32(s)) {
		x.cancel(failure("signal", "the program does not read its input, so the signal could not be sent: the program was ended", ErrUnavailable))
	}
}

// Wait waits until the program has ended and its output was written. Up to 256 KiB of each of
// Stdout and Stderr can be read after Wait. A program that failed is not an error. Errors:
// ErrTimeout; that of the context.
func (x *AttachedExec) Wait() (*ExecResult, error) {
	<-x.ended
	return x.result, x.err
}

// Close ends the program, unless it is detached, and drops output that was not read.
func (x *AttachedExec) Close() error {
	x.cancel(nil)
	<-x.ended
	return nil
}
