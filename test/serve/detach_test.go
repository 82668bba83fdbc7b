package serve_test

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// execs lists the detached commands of a sandbox.
func (s *server) execs(id string) []*sandboxv1.DetachedExec {
	s.t.Helper()
	list, err := s.sandboxes.ListExecs(s.t.Context(), &sandboxv1.ListExecsRequest{SandboxId: id})
	return must(s.t, list, err).Execs
}

func TestADetachedCommandIsTakenUp(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	ctx, leave := context.WithCancel(t.Context())
	r := shell(id, "echo one; echo err >&2; read x; echo got $x; exit 3")
	r.Detach = true
	first := s.attach(ctx, starts(r))
	first.hear("one\n")
	leave()
	if list := s.execs(id); len(list) != 1 || list[0].ExecId != first.id || list[0].ExitCode != nil || list[0].Argv[2] != r.Argv[2] || list[0].StartedAt == nil {
		t.Fatalf("listed %v", list)
	}
	k := s.attach(t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: first.id, StdoutOffset: 2}))
	k.write("it\n")
	k.ends(3)
	if k.out.String() != "e\ngot it\n" || k.errs.String() != "err\n" || k.lost != 0 {
		t.Errorf("output %q, errors %q, %d lost", k.out.String(), k.errs.String(), k.lost)
	}
	if list := s.execs(id); len(list) != 1 || list[0].GetExitCode() != 3 {
		t.Errorf("listed %v", list)
	}
	again := s.attach(t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: first.id}))
	again.ends(3)
	if again.out.String() != "one\ngot it\n" {
		t.Errorf("after its end the output is %q", again.out.String())
	}
}

func TestADetachedTerminalIsTakenUp(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	ctx, leave := context.WithCancel(t.Context())
	r := shell(id, "stty size; "+untilResized+"; read x; echo got $x")
	r.Detach, r.Terminal = true, &sandboxv1.AttachRequest_WindowSize{Rows: 33, Columns: 101}
	first := s.attach(ctx, starts(r))
	first.hear("33 101\r\n")
	leave()
	k := s.attach(t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: first.id}))
	k.hear("33 101\r\n")
	k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: &sandboxv1.AttachRequest_WindowSize{Rows: 44, Columns: 80}}})
	k.hear("44 80\r\n")
	k.write("it\n")
	k.hear("got it\r\n")
	k.ends(0)
}

func TestOfADetachedCommandTheEndIsKept(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	r := shell(id, "head -c 1000000 /dev/zero | tr '\\0' x; echo end")
	r.Detach = true
	first := s.attach(t.Context(), starts(r))
	if first.ends(0); first.out.Len() != 1_000_004 {
		t.Errorf("whoever listens has %d bytes", first.out.Len())
	}
	k := s.attach(t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: first.id}))
	k.ends(0)
	if k.out.Len() != 256<<10 || k.lost != 1_000_004-256<<10 || !strings.HasSuffix(k.out.String(), "xend\n") {
		t.Errorf("%d bytes are kept, %d lost", k.out.Len(), k.lost)
	}
}

func TestADetachedCommandOutlivesTheServer(t *testing.T) {
	s := start(t)
	cb := s.codebase(nil)
	id := s.sandbox(cb)
	made, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: id})
	session := must(t, made, err).Id
	wait := func(file string) string {
		return "echo begun; while [ ! -e " + file + " ]; do sleep 0.01; done; echo over; echo done > " + file + ".done; exit 4"
	}
	for _, open := range []func() (sandboxv1.SandboxService_ExecStreamClient, error){
		func() (sandboxv1.SandboxService_ExecStreamClient, error) {
			return s.sandboxes.ExecStream(t.Context(), &sandboxv1.ExecRequest{SandboxId: id, Command: wait("a"), Detach: true})
		},
		func() (sandboxv1.SandboxService_ExecStreamClient, error) {
			return s.sandboxes.SessionExecStream(t.Context(), &sandboxv1.SessionExecRequest{SessionId: session, Command: "(" + wait("b") + ")", Detach: true})
		},
	} {
		stream, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.ExecId == "" {
			t.Fatalf("the first message is %v, %v", m, err)
		}
		if m, err := stream.Recv(); err != nil || string(m.Data) != "begun\n" {
			t.Fatalf("the second message is %v, %v", m, err)
		}
	}
	s.end(syscall.SIGKILL)
	s.serve()
	list := s.execs(id)
	if len(list) != 2 || list[0].ExitCode != nil || list[1].ExitCode != nil || list[0].SessionId != "" || list[1].SessionId != session {
		t.Fatalf("after the restart there are %v", list)
	}
	for _, file := range []string{"a", "b"} {
		s.upload(cb, file, "")
		testenv.Eventually(t, "its work reaches the codebase", func() bool {
			got, err := s.download(cb, file+".done")
			return err == nil && got == "done\n"
		})
	}
	for _, x := range s.execs(id) {
		k := s.attach(t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: x.ExecId}))
		if k.ends(4); k.out.String() != "begun\nover\n" {
			t.Errorf("%s wrote %q", x.ExecId, k.out.String())
		}
	}
}

func TestCallsThatOnlyWaitEndWithTheServer(t *testing.T) {
	s := start(t)
	id := s.sandbox(s.codebase(nil))
	log, err := s.sandboxes.Audit(t.Context(), &sandboxv1.AuditRequest{SandboxId: id, Follow: true})
	if err == nil {
		_, err = log.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	r := shell(id, "echo begun; sleep 1000")
	r.Detach = true
	k := s.attach(t.Context(), starts(r))
	k.hear("begun\n")
	done := make(chan error, 2)
	for _, recv := range []func() error{
		func() error { _, err := log.Recv(); return err },
		func() error { _, err := k.call.Recv(); return err },
	} {
		go func() {
			for {
				if err := recv(); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		wantCode(t, <-done, codes.Unavailable, "the server is shutting down")
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	s.conn.Close()
	s.serve()
	if list := s.execs(id); len(list) != 1 || list[0].ExitCode != nil {
		t.Errorf("after the restart there is %v", list)
	}
}
