package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ExecResult is the result of a command. A command that failed is not an error.
type ExecResult struct {
	Stdout, Stderr []byte
	// Truncated means that the end of the output is missing; ExecStream has no such limit.
	StdoutTruncated, StderrTruncated bool
	ExitCode                         int // 128 plus the number of a signal that ended it
	Duration                         time.Duration
	// Conflicts are paths that also changed outside; the list may be cut.
	Conflicts     []string
	ConflictCount int64 // number of conflicts
	Effects
}

// Success reports whether the command succeeded.
func (r *ExecResult) Success() bool { return r.ExitCode == 0 }

// Err is nil if the command succeeded, else of the kind ErrCommand, with the exit
// code and the last line of its standard error.
func (r *ExecResult) Err() error {
	if r.Success() {
		return nil
	}
	const most = 500
	said := bytes.TrimSpace(r.Stderr)
	said = said[bytes.LastIndexByte(said, '\n')+1:]
	message := "exit code " + strconv.Itoa(r.ExitCode)
	if said = said[max(0, len(said)-most):]; len(said) > 0 {
		message += ": " + vpath.Escape(string(said))
	}
	return failure("run", message, ErrCommand)
}

func resultFrom(r *sandboxv1.ExecResult) *ExecResult {
	out, complaints := r.StdoutBytes, r.StderrBytes
	if len(out) == 0 {
		out = []byte(r.Stdout)
	}
	if len(complaints) == 0 {
		complaints = []byte(r.Stderr)
	}
	return &ExecResult{
		Stdout: out, Stderr: complaints, StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated,
		ExitCode: int(r.ExitCode), Duration: r.Duration.AsDuration(), Conflicts: decoded(r.Conflicts), ConflictCount: r.ConflictCount,
		Effects: effectsFrom(r),
	}
}

// Run runs a command as /bin/sh -c COMMAND in the workspace and waits for its end. Errors:
// ErrNotRunning; ErrTimeout after the time-out, when the command and all its processes were ended.
func (s *Sandbox) Run(ctx context.Context, command string, options ...RunOption) (*ExecResult, error) {
	o := collect(options)
	if o.stdin != nil && !inMemory(o.stdin) {
		return s.runFed(ctx, command, o)
	}
	request, err := s.request(command, o)
	if err != nil {
		return nil, err
	}
	got, err := s.c.sandboxes.Exec(ctx, request)
	if err != nil {
		return nil, s.c.fail(ctx, "run", err)
	}
	return resultFrom(got), nil
}

func (s *Sandbox) request(command string, o *settings) (*sandboxv1.ExecRequest, error) {
	r := &sandboxv1.ExecRequest{
		SandboxId: s.ID, Command: command, Env: o.env, Workdir: o.workdir, Timeout: span(o.timeout), Detach: o.detach, Checkpoint: o.checkpoint,
	}
	if o.stdin == nil {
		return r, nil
	}
	var err error
	if r.StdinBytes, err = io.ReadAll(o.stdin); err != nil {
		return nil, failure("run", "standard input: "+err.Error(), err)
	}
	return r, nil
}

// inMemory reports whether an input is completely in memory and fits in one message.
func inMemory(from io.Reader) bool {
	const most = 1 << 20
	sized, ok := from.(interface{ Len() int })
	return ok && sized.Len() <= most
}

// streamFed is ExecStream with an input that is sent while it is read.
func (s *Sandbox) streamFed(ctx context.Context, command string, stdout, stderr io.Writer, o *settings) (*ExecResult, error) {
	o.stdout, o.stderr = orDiscard(stdout), orDiscard(stderr)
	x, err := s.attach(ctx, []string{"/bin/sh", "-c", command}, o)
	if err != nil {
		return nil, err
	}
	return x.Wait()
}

func orDiscard(to io.Writer) io.Writer {
	if to == nil {
		return io.Discard
	}
	return to
}

// runFed is Run with an input that is sent while it is read.
func (s *Sandbox) runFed(ctx context.Context, command string, o *settings) (*ExecResult, error) {
	var stdout, stderr capped
	result, err := s.streamFed(ctx, command, &stdout, &stderr, o)
	if err != nil {
		return nil, err
	}
	result.Stdout, result.StdoutTruncated = stdout.text.Bytes(), stdout.cut
	result.Stderr, result.StderrTruncated = stderr.text.Bytes(), stderr.cut
	return result, nil
}

// capped keeps the beginning of what is written.
type capped struct {
	text bytes.Buffer
	cut  bool
}

// Write never fails.
func (k *capped) Write(b []byte) (int, error) {
	const most = 2 << 20
	keep := min(len(b), most-k.text.Len())
	k.text.Write(b[:keep])
	k.cut = k.cut || keep < len(b)
	return len(b), nil
}

func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// ExecStream is Run that writes the output while the command runs, without a limit of size. A nil
// writer drops its stream; an error of a writer ends the command. The result has no output.
func (s *Sandbox) ExecStream(ctx context.Context, command string, stdout, stderr io.Writer, options ...RunOption) (*ExecResult, error) {
	o := collect(options)
	if o.stdin != nil && !inMemory(o.stdin) {
		return s.streamFed(ctx, command, stdout, stderr, o)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	request, err := s.request(command, o)
	if err != nil {
		return nil, err
	}
	stream, err := s.c.sandboxes.ExecStream(ctx, request)
	if err != nil {
		return nil, s.c.fail(ctx, "run", err)
	}
	return s.c.copyOutput(ctx, stream, stdout, stderr, started)
}

// endOf converts the last message of a command.
func endOf(last *sandboxv1.ExecOutput) *ExecResult {
	return &ExecResult{ExitCode: int(*last.ExitCode), Conflicts: decoded(last.Conflicts), ConflictCount: last.ConflictCount, Effects: effectsFrom(last)}
}

// decoded converts paths of the API.
func decoded(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, vpath.DecodeText(p))
	}
	return out
}

func (c *Client) copyOutput(ctx context.Context, from grpc.ServerStreamingClient[sandboxv1.ExecOutput], stdout, stderr io.Writer, started time.Time) (*ExecResult, error) {
	result := &ExecResult{}
	for {
		piece, err := from.Recv()
		if errors.Is(err, io.EOF) {
			result.Duration = time.Since(started)
			return result, nil
		}
		if err != nil {
			return nil, c.fail(ctx, "run", err)
		}
		to := stdout
		if piece.Type == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR {
			to = stderr
		}
		if piece.ExitCode != nil {
			result = endOf(piece)
		}
		if to == nil || len(piece.Data) == 0 {
			continue
		}
		if _, err := to.Write(piece.Data); err != nil {
			return nil, failure("run", err.Error(), err)
		}
	}
}
