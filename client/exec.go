package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// RunOptions are how a command runs.
type RunOptions struct {
	Stdin   []byte
	Env     map[string]string
	Workdir string        // empty: the workspace
	Timeout time.Duration // 0: the server's default
	// Detach lets the command go on when the caller's context ends.
	Detach bool
}

// Result is how a command ended. A command that failed is no error.
type Result struct {
	Stdout, Stderr []byte
	// Truncated says that output is missing at its end; Stream has no such limit.
	StdoutTruncated, StderrTruncated bool
	ExitCode                         int // 128 and its number where a signal ended it
	Duration                         time.Duration
	// Conflicts are paths that somebody outside changed too, as many as there
	// was room for.
	Conflicts []string
}

// OK reports whether the command succeeded.
func (r *Result) OK() bool { return r.ExitCode == 0 }

func resultFrom(r *sandboxv1.ExecResult) *Result {
	out, complaints := r.StdoutBytes, r.StderrBytes
	if len(out) == 0 {
		out = []byte(r.Stdout)
	}
	if len(complaints) == 0 {
		complaints = []byte(r.Stderr)
	}
	return &Result{
		Stdout: out, Stderr: complaints, StdoutTruncated: r.StdoutTruncated, StderrTruncated: r.StderrTruncated,
		ExitCode: int(r.ExitCode), Duration: r.Duration.AsDuration(), Conflicts: r.Conflicts,
	}
}

// Run runs a command by /bin/sh and waits for its end.
// Errors: ErrNotRunning; ErrTimeout after o.Timeout, when the command and all
// it started have been ended.
func (s *Sandbox) Run(ctx context.Context, command string, o RunOptions) (*Result, error) {
	got, err := s.c.sandboxes.Exec(ctx, s.request(command, o))
	if err != nil {
		return nil, fail(ctx, "run", err)
	}
	return resultFrom(got), nil
}

func (s *Sandbox) request(command string, o RunOptions) *sandboxv1.ExecRequest {
	return &sandboxv1.ExecRequest{
		SandboxId: s.ID, Command: command, StdinBytes: o.Stdin, Env: o.Env, Workdir: o.Workdir, Timeout: span(o.Timeout), Detach: o.Detach,
	}
}

func span(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// Stream is Run that writes the output as it comes, however much there is. A
// nil writer drops its stream; an error of a writer ends the command. The
// result has no output.
func (s *Sandbox) Stream(ctx context.Context, command string, stdout, stderr io.Writer, o RunOptions) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	stream, err := s.c.sandboxes.ExecStream(ctx, s.request(command, o))
	if err != nil {
		return nil, fail(ctx, "run", err)
	}
	return copyOutput(ctx, stream, stdout, stderr, started)
}

func copyOutput(ctx context.Context, from grpc.ServerStreamingClient[sandboxv1.ExecOutput], stdout, stderr io.Writer, started time.Time) (*Result, error) {
	result := &Result{}
	for {
		piece, err := from.Recv()
		if errors.Is(err, io.EOF) {
			result.Duration = time.Since(started)
			return result, nil
		}
		if err != nil {
			return nil, fail(ctx, "run", err)
		}
		to := stdout
		if piece.Type == sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR {
			to = stderr
		}
		if piece.ExitCode != nil {
			result.ExitCode, result.Conflicts = int(*piece.ExitCode), piece.Conflicts
		}
		if to == nil || len(piece.Data) == 0 {
			continue
		}
		if _, err := to.Write(piece.Data); err != nil {
			return nil, &Error{"run", err.Error(), []error{err}}
		}
	}
}
