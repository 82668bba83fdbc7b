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
// Errors: ErrNotRunning; ErrTimeout after the time-out, when the command and all
// it started have been ended.
func (s *Sandbox) Run(ctx context.Context, command string, options ...RunOption) (*Result, error) {
	request, err := s.request(command, collect(options))
	if err != nil {
		return nil, err
	}
	got, err := s.c.sandboxes.Exec(ctx, request)
	if err != nil {
		return nil, fail(ctx, "run", err)
	}
	return resultFrom(got), nil
}

func (s *Sandbox) request(command string, o *settings) (*sandboxv1.ExecRequest, error) {
	r := &sandboxv1.ExecRequest{
		SandboxId: s.ID, Command: command, Env: o.env, Workdir: o.workdir, Timeout: span(o.timeout), Detach: o.detach,
	}
	if o.stdin == nil {
		return r, nil
	}
	var err error
	if r.StdinBytes, err = io.ReadAll(o.stdin); err != nil {
		return nil, &Error{"run", "standard input: " + err.Error(), []error{err}}
	}
	return r, nil
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
func (s *Sandbox) Stream(ctx context.Context, command string, stdout, stderr io.Writer, options ...RunOption) (*Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := time.Now()
	request, err := s.request(command, collect(options))
	if err != nil {
		return nil, err
	}
	stream, err := s.c.sandboxes.ExecStream(ctx, request)
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
