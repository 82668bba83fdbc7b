package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// talk is an Attach call.
type talk struct {
	t    *testing.T
	call sandboxv1.SandboxService_AttachClient
	id   string // of the command
	lost int64
	out  bytes.Buffer
	errs bytes.Buffer
	exit *int32
	end  error
}

// attach begins a call with its first message and waits until the command runs.
func (s *server) attach(ctx context.Context, first *sandboxv1.AttachRequest) *talk {
	s.t.Helper()
	call, err := s.sandboxes.Attach(ctx)
	k := &talk{t: s.t, call: must(s.t, call, err)}
	k.say(first)
	m, err := k.call.Recv()
	if k.id, k.lost = m.GetExecId(), m.GetLostBytes(); err != nil || k.id == "" {
		s.t.Fatalf("the first answer is %v, %v", m, err)
	}
	return k
}

func starts(start *sandboxv1.AttachRequest_Start) *sandboxv1.AttachRequest {
	return &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Start_{Start: start}}
}

func resumes(resume *sandboxv1.AttachRequest_Resume) *sandboxv1.AttachRequest {
	return &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resume_{Resume: resume}}
}

func (k *talk) say(m *sandboxv1.AttachRequest) {
	k.t.Helper()
	if err := k.call.Send(m); err != nil {
		k.t.Errorf("say %v: %v", m, err)
	}
}

func (k *talk) write(text string) {
	k.t.Helper()
	k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Stdin{Stdin: []byte(text)}})
}

// hear reads until the output holds word, or to the end for "".
func (k *talk) hear(word string) {
	k.t.Helper()
	for word == "" || !strings.Contains(k.out.String(), word) {
		m, err := k.call.Recv()
		if err != nil {
			if k.end = err; word != "" || !errors.Is(err, io.EOF) {
				k.t.Fatalf("waiting for %q: %v, having %q", word, err, k.out.String())
			}
			return
		}
		switch m.Type {
		case sandboxv1.ExecOutput_OUTPUT_TYPE_STDOUT:
			k.out.Write(m.Data)
		case sandboxv1.ExecOutput_OUTPUT_TYPE_STDERR:
			k.errs.Write(m.Data)
		}
		if m.ExitCode != nil {
			k.exit = m.ExitCode
		}
	}
}

// ends hears the end, and checks the exit code.
func (k *talk) ends(want int32) {
	k.t.Helper()
	if k.hear(""); k.exit == nil || *k.exit != want {
		k.t.Errorf("exit code %v, want %d; output %q", k.exit, want, k.out.String())
	}
}

func shell(id, script string) *sandboxv1.AttachRequest_Start {
	return &sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"sh", "-c", script}}
}

// untilResized waits for a terminal of 44 rows.
const untilResized = `until [ "$(stty size)" = "44 80" ]; do sleep 0.01; done; stty size`

func TestAttach(t *testing.T) {
	s := start(t)
	cb := s.codebase(map[string]string{"d/f": ""})
	id := s.sandbox(cb)
	t.Run("input and output as they come", func(t *testing.T) {
		r := shell(id, "while read x; do echo $V $x; done; pwd; echo err >&2; exit 7")
		r.Env, r.Workdir = map[string]string{"V": "got"}, "d"
		k := s.inTest(t).attach(t.Context(), starts(r))
		k.write("one\n")
		k.hear("got one\n")
		k.write("two\n")
		k.hear("got two\n")
		k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_StdinEnd{StdinEnd: true}})
		k.ends(7)
		if k.out.String() != "got one\ngot two\n/workspace/d\n" || k.errs.String() != "err\n" {
			t.Errorf("output %q, errors %q", k.out.String(), k.errs.String())
		}
	})
	t.Run("a client that says no more ends the input", func(t *testing.T) {
		k := s.inTest(t).attach(t.Context(), starts(shell(id, "cat; echo end")))
		k.write("all")
		if err := k.call.CloseSend(); err != nil {
			t.Error(err)
		}
		k.ends(0)
		if k.out.String() != "allend\n" {
			t.Errorf("output %q", k.out.String())
		}
	})
	t.Run("a terminal of its own", func(t *testing.T) {
		r := shell(id, "stty size; "+untilResized+"; read x; echo got $x; tty >&2; read y || echo ended")
		r.Terminal = &sandboxv1.AttachRequest_WindowSize{Rows: 33, Columns: 101}
		k := s.inTest(t).attach(t.Context(), starts(r))
		k.hear("33 101\r\n")
		k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: &sandboxv1.AttachRequest_WindowSize{Rows: 44, Columns: 80}}})
		k.hear("44 80\r\n")
		k.write("it\n")
		k.hear("got it\r\n")
		k.hear("/dev/pts/")
		k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_StdinEnd{StdinEnd: true}})
		k.hear("ended")
		k.ends(0)
	})
	t.Run("signals", func(t *testing.T) {
		k := s.inTest(t).attach(t.Context(), starts(shell(id, "trap 'exit 5' INT; echo ready; while :; do sleep 0.01; done")))
		k.hear("ready\n")
		k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Signal{Signal: int32(syscall.SIGINT)}})
		k.ends(5)
	})
	t.Run("its changes reach the codebase", func(t *testing.T) {
		k := s.inTest(t).attach(t.Context(), starts(shell(id, "echo new > made")))
		k.ends(0)
		if got, err := s.download(cb, "made"); got != "new\n" || err != nil {
			t.Errorf("the codebase has %q, %v", got, err)
		}
	})
	t.Run("a client that leaves ends its command", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := s.inTest(t).attach(ctx, starts(shell(id, "echo begun; while :; do echo more; done")))
		k.hear("begun\n")
		if n := s.stats(id).Execs; n != 1 {
			t.Errorf("%d commands run, want it", n)
		}
		cancel()
		testenv.Eventually(t, "the command ends", func() bool { return s.stats(id).Execs == 0 })
	})
}

func TestAttachRefuses(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	for _, tt := range []struct {
		name  string
		first *sandboxv1.AttachRequest
		want  codes.Code
		word  string
	}{
		{"another first message", &sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Signal{Signal: 1}}, codes.InvalidArgument, "start"},
		{"no sandbox", starts(&sandboxv1.AttachRequest_Start{Argv: []string{"true"}}), codes.InvalidArgument, "sandbox_id"},
		{"no command", starts(&sandboxv1.AttachRequest_Start{SandboxId: id}), codes.InvalidArgument, "argv"},
		{"a NUL", starts(&sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"a\x00b"}}), codes.InvalidArgument, "argv"},
		{"too large a terminal", starts(&sandboxv1.AttachRequest_Start{
			SandboxId: id, Argv: []string{"true"}, Terminal: &sandboxv1.AttachRequest_WindowSize{Rows: 1 << 16},
		}), codes.InvalidArgument, "rows"},
		{"no exec", resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id}), codes.InvalidArgument, "exec_id"},
		{"a negative offset", resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: "exec-1", StderrOffset: -1}), codes.InvalidArgument, "stderr_offset"},
		{"an unknown exec", resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: "exec-99"}), codes.NotFound, "exec-99"},
	} {
		call, err := s.sandboxes.Attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = call.Send(tt.first) // the answer tells
		_, err = call.Recv()
		t.Run(tt.name, func(t *testing.T) { wantCode(t, err, tt.want, tt.word) })
	}
	k := s.attach(t.Context(), starts(shell(id, "sleep 1000")))
	k.say(starts(shell(id, "true")))
	_, err := k.call.Recv()
	wantCode(t, err, codes.InvalidArgument, "only the first message may be start or resume")
	k = s.attach(t.Context(), starts(shell(id, "sleep 1000")))
	k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Signal{Signal: 65}})
	_, err = k.call.Recv()
	wantCode(t, err, codes.InvalidArgument, "signal")
	k = s.attach(t.Context(), starts(&sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"true"}}))
	k.ends(0)
	call, err := s.sandboxes.Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = call.Send(starts(&sandboxv1.AttachRequest_Start{SandboxId: id, Argv: []string{"not-there"}}))
	k = &talk{t: t, call: call}
	if k.ends(127); !strings.Contains(k.errs.String(), "not-there") {
		t.Errorf("errors %q", k.errs.String())
	}
}
