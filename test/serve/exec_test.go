package serve_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

func TestExec(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(map[string]string{"d/f": "x"}))
	exec := func(r *sandboxv1.ExecRequest) *sandboxv1.ExecResult {
		t.Helper()
		r.SandboxId = id
		got, err := s.sandboxes.Exec(t.Context(), r)
		return must(t, got, err)
	}
	t.Run("the streams come apart, whatever the exit code", func(t *testing.T) {
		got := exec(&sandboxv1.ExecRequest{Command: "echo out; echo err >&2; exit 3"})
		if got.Stdout != "out\n" || got.Stderr != "err\n" || got.ExitCode != 3 || got.Duration.AsDuration() <= 0 {
			t.Errorf("got %v", got)
		}
	})
	t.Run("stdin, env and workdir", func(t *testing.T) {
		got := exec(&sandboxv1.ExecRequest{Command: "cat; echo $A; pwd; ls", Stdin: "in\n", Env: map[string]string{"A": "b c"}, Workdir: "d"})
		if got.Stdout != "in\nb c\n/workspace/d\nf\n" {
			t.Errorf("got %q", got.Stdout)
		}
	})
	t.Run("without stdin there is an end at once", func(t *testing.T) {
		if got := exec(&sandboxv1.ExecRequest{Command: "cat; echo end"}); got.Stdout != "end\n" {
			t.Errorf("got %q", got.Stdout)
		}
	})
	t.Run("nothing of the server's environment is inside", func(t *testing.T) {
		if got := exec(&sandboxv1.ExecRequest{Command: "env"}); strings.Contains(got.Stdout, "AGENTFENSE_HOME") || strings.Contains(got.Stdout, s.home) {
			t.Errorf("got %q", got.Stdout)
		}
	})
	t.Run("what is no UTF-8 comes as bytes too", func(t *testing.T) {
		got := exec(&sandboxv1.ExecRequest{Command: `printf 'a\377b'`})
		if got.Stdout != "a\uFFFDb" || string(got.StdoutBytes) != "a\xffb" {
			t.Errorf("got %q, %q", got.Stdout, got.StdoutBytes)
		}
	})
	t.Run("a signal", func(t *testing.T) {
		if got := exec(&sandboxv1.ExecRequest{Command: "kill -9 $$"}); got.ExitCode != 128+9 {
			t.Errorf("exit code %d", got.ExitCode)
		}
	})
	t.Run("a background process holds up nobody", func(t *testing.T) {
		if got := exec(&sandboxv1.ExecRequest{Command: "sleep 1000 & echo begun"}); got.Stdout != "begun\n" {
			t.Errorf("got %q", got.Stdout)
		}
	})
	t.Run("too much output is cut to what a client takes", func(t *testing.T) {
		got := exec(&sandboxv1.ExecRequest{Command: "head -c 9000000 /dev/zero | tr '\\0' x; echo end >&2"})
		if !got.StdoutTruncated || got.StderrTruncated || got.Stderr != "end\n" {
			t.Errorf("truncated %v %v, stderr %q", got.StdoutTruncated, got.StderrTruncated, got.Stderr)
		}
		if size := proto.Size(got); size > 4<<20-64<<10 || size < 4<<20-65<<10 {
			t.Errorf("the result has %d bytes", size)
		}
	})
	t.Run("much output that fits is whole", func(t *testing.T) {
		got := exec(&sandboxv1.ExecRequest{Command: "head -c 4000000 /dev/zero | tr '\\0' x"})
		if got.StdoutTruncated || len(got.Stdout) != 4000000 {
			t.Errorf("truncated %v, %d bytes", got.StdoutTruncated, len(got.Stdout))
		}
	})
	t.Run("a time-out", func(t *testing.T) {
		_, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: "sleep 1000", Timeout: durationpb.New(100 * time.Millisecond)})
		wantCode(t, err, codes.DeadlineExceeded, "timed out", "100ms")
	})
	t.Run("bad input names its field", func(t *testing.T) {
		for field, r := range map[string]*sandboxv1.ExecRequest{
			"sandbox_id": {Command: "true"},
			"command":    {SandboxId: id},
			"timeout":    {SandboxId: id, Command: "true", Timeout: durationpb.New(-1)},
			"env":        {SandboxId: id, Command: "true", Env: map[string]string{"A=B": "c"}},
			"workdir":    {SandboxId: id, Command: "true", Workdir: "a\x00b"},
		} {
			_, err := s.sandboxes.Exec(t.Context(), r)
			wantCode(t, err, codes.InvalidArgument, field)
		}
	})
	t.Run("a client that leaves ends its command", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{SandboxId: id, Command: "echo begun; exec sleep 4321"})
		if first := must(t, stream, err); first != nil {
			m, err := stream.Recv()
			if got := must(t, m, err); string(got.Data) != "begun\n" {
				t.Errorf("first message %v", got)
			}
		}
		sleeps := func() bool {
			return strings.Contains(s.exec(id, `cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' '`), "sleep 4321 ")
		}
		testenv.Eventually(t, "the command sleeps", sleeps)
		cancel()
		testenv.Eventually(t, "the command ends", func() bool { return !sleeps() })
	})
}

func TestExecStream(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	stream, err := s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "echo one; read line; echo $line >&2; exit 7", Stdin: "two\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	var last *sandboxv1.ExecOutput
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		switch last = must(t, m, err); m.Type {
		case sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT:
			out.Write(m.Data)
		case sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR:
			errs.Write(m.Data)
		}
	}
	if out.String() != "one\n" || errs.String() != "two\n" || last == nil || last.ExitCode == nil || *last.ExitCode != 7 {
		t.Errorf("stdout %q, stderr %q, last %v", out.String(), errs.String(), last)
	}
}

func TestADetachedCommandGoesOnWithoutItsClient(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	id := s.sandbox(cb)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := s.sandboxes.ExecStream(ctx, &sandboxv1.ExecRequest{
		SandboxId: id, Command: "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo more; echo done > done", Detach: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.Recv()
	must(t, m, err)
	cancel()
	s.upload(cb, "go", "")
	testenv.Eventually(t, "its work reaches the codebase", func() bool {
		got, err := s.download(cb, "done")
		return err == nil && got == "done\n"
	})
}
