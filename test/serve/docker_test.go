package serve_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// startDocker starts a docker daemon and a server whose default runtime it is.
func startDocker(t *testing.T) (s *server, host string) {
	t.Helper()
	testenv.FUSE(t)
	testenv.Docker(t)
	host = testenv.DockerDaemon(t)
	return start(t, "AGENTFENSE_RUNTIME_TYPE=docker", "AGENTFENSE_RUNTIME_DOCKER_HOST="+host,
		"AGENTFENSE_RUNTIME_DOCKER_DEFAULT_IMAGE="+testenv.DockerImage), host
}

// containers returns how many containers of ours the daemon has.
func containers(t *testing.T, host string) int {
	t.Helper()
	out, err := exec.Command("docker", "--host", host, "ps", "--all", "--quiet", "--filter", "label=agentfense.sandbox").Output()
	return len(strings.Fields(string(must(t, out, err))))
}

func TestDocker(t *testing.T) {
	s, host := startDocker(t)
	t.Run("commands, sessions, the policy and the codebase", func(t *testing.T) { s.inTest(t).dockerWorks(host) })
	t.Run("each sandbox has the runtime that it asks for", func(t *testing.T) { s.inTest(t).runtimesSideBySide() })
	t.Run("stats", func(t *testing.T) { s.inTest(t).statsTell(nil) })
	t.Run("a terminal", func(t *testing.T) { s.inTest(t).dockerTerminal() })
	t.Run("limits", func(t *testing.T) { s.inTest(t).limitsHold() })
	t.Run("an image that is not there is named", func(t *testing.T) { s.inTest(t).noSuchImage() })
	s.dockerSurvives()
	if n := containers(t, host); n != 1 {
		t.Errorf("%d containers are there, want the one that runs", n)
	}
}

// inTest is s for a test of its own.
func (s *server) inTest(t *testing.T) *server {
	in := *s
	in.t = t
	return &in
}

func (s *server) dockerWorks(host string) {
	t := s.t
	cb := s.codebase(map[string]string{"f": "old\n", ".env": "SECRET"})
	id := s.sandbox(cb, append(everything, &sandboxv1.PermissionRule{Pattern: ".env", Priority: 1})...)
	got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
	if box := must(t, got, err); box.Runtime != sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER || box.Image != testenv.DockerImage {
		t.Errorf("runtime %s, image %q", box.Runtime, box.Image)
	}
	r, err := s.sandboxes.Exec(t.Context(), &sandboxv1.ExecRequest{
		SandboxId: id, Command: "cat; pwd; cat f; test -e .env || echo hidden; grep -c . /bin/getent; echo new > f; echo err >&2; exit 3", Stdin: "in\n",
	})
	if got := must(t, r, err); got.Stdout != "in\n/workspace\nold\nhidden\n5\n" || got.Stderr != "err\n" || got.ExitCode != 3 {
		t.Errorf("got %v", got)
	}
	if got, err := s.download(cb, "f"); got != "new\n" || err != nil {
		t.Errorf("the codebase has %q, %v", got, err)
	}
	s.upload(cb, "f", "uploaded\n")
	session, err := s.sandboxes.CreateSession(t.Context(), &sandboxv1.CreateSessionRequest{SandboxId: id})
	in := must(t, session, err).Id
	for _, step := range []struct{ command, want string }{{"A=1; cat f; cd /", "uploaded\n"}, {"echo $A; pwd", "1\n/\n"}} {
		r, err := s.sandboxes.SessionExec(t.Context(), &sandboxv1.SessionExecRequest{SessionId: in, Command: step.command})
		if got := must(t, r, err); got.Stdout != step.want {
			t.Errorf("%s: %q, want %q", step.command, got.Stdout, step.want)
		}
	}
	stopped, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id})
	if must(t, stopped, err).Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_STOPPED || containers(t, host) != 0 {
		t.Errorf("stopped: %v, %d containers", stopped.Status, containers(t, host))
	}
	started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	must(t, started, err)
	if got := s.exec(id, "cat f"); got != "uploaded\n" {
		t.Errorf("after a stop it has %q", got)
	}
	empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, empty, err)
}

// runtimesSideBySide has the second sandbox's supervisor start with a copy of what
// docker's has mounted on the host, which must keep that from nothing.
func (s *server) runtimesSideBySide() {
	t := s.t
	cb := s.codebase(nil)
	var ids []string
	for _, tt := range []struct {
		runtime sandboxv1.RuntimeType
		command string
	}{
		{sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER, "test -e /run/agentfense/init"},
		{sandboxv1.RuntimeType_RUNTIME_TYPE_BWRAP, "test ! -e /run/agentfense/init"},
	} {
		made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: cb, Permissions: everything, Runtime: tt.runtime})
		id := must(t, made, err).Id
		if made.Runtime != tt.runtime {
			t.Errorf("runtime %s, want %s", made.Runtime, tt.runtime)
		}
		started, err := s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
		must(t, started, err)
		s.exec(id, tt.command)
		ids = append(ids, id)
	}
	for _, id := range ids {
		stopped, err := s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id})
		must(t, stopped, err)
		warned, err := os.ReadFile(filepath.Join(s.home, "sandboxes", id, "supervisor.log"))
		if len(must(t, warned, err)) > 0 {
			t.Errorf("the end of %s was not smooth: %s", stopped.Runtime, warned)
		}
		empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
		must(t, empty, err)
	}
}

func (s *server) dockerTerminal() {
	id := s.sandbox(s.codebase(nil))
	r := shell(id, "stty size; "+untilResized+"; read x; echo got $x; exit 6")
	r.Terminal = &sandboxv1.AttachRequest_WindowSize{Rows: 33, Columns: 101}
	k := s.attach(s.t.Context(), starts(r))
	k.hear("33 101\r\n")
	k.say(&sandboxv1.AttachRequest{Message: &sandboxv1.AttachRequest_Resize{Resize: &sandboxv1.AttachRequest_WindowSize{Rows: 44, Columns: 80}}})
	k.write("it\n")
	k.hear("got it\r\n")
	k.ends(6)
	empty, err := s.sandboxes.DestroySandbox(s.t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(s.t, empty, err)
}

// dockerSurvives kills the server. It leaves one container running.
func (s *server) dockerSurvives() {
	id := s.sandbox(s.codebase(nil))
	s.exec(id, "echo mark > /tmp/mark")
	r := shell(id, "echo begun; read x; echo got $x")
	r.Detach = true
	left := s.attach(s.t.Context(), starts(r))
	left.hear("begun\n")
	s.end(syscall.SIGKILL)
	s.serve()
	k := s.attach(s.t.Context(), resumes(&sandboxv1.AttachRequest_Resume{SandboxId: id, ExecId: left.id}))
	k.write("it\n")
	if k.ends(0); k.out.String() != "begun\ngot it\n" {
		s.t.Errorf("the command that was left wrote %q", k.out.String())
	}
	if got := s.exec(id, "cat /tmp/mark"); got != "mark\n" {
		s.t.Errorf("got %q", got)
	}
}

func (s *server) noSuchImage() {
	t := s.t
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{CodebaseId: s.codebase(nil), Image: "not-there"})
	id := must(t, made, err).Id
	_, err = s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "No such image", "docker pull not-there")
	got, err := s.sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{SandboxId: id})
	if box := must(t, got, err); box.Status != sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR || !strings.Contains(box.StatusReason, "docker pull") {
		t.Errorf("status %s, %q", box.Status, box.StatusReason)
	}
	empty, err := s.sandboxes.DestroySandbox(t.Context(), &sandboxv1.DestroySandboxRequest{SandboxId: id})
	must(t, empty, err)
}

func TestADockerThatIsNotThereIsNamedAtTheStart(t *testing.T) {
	s := start(t, "AGENTFENSE_RUNTIME_DOCKER_HOST=unix:///not/there")
	made, err := s.sandboxes.CreateSandbox(t.Context(), &sandboxv1.CreateSandboxRequest{
		CodebaseId: s.codebase(nil), Runtime: sandboxv1.RuntimeType_RUNTIME_TYPE_DOCKER,
	})
	id := must(t, made, err).Id
	_, err = s.sandboxes.StartSandbox(t.Context(), &sandboxv1.StartSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "docker")
	_, err = s.sandboxes.StopSandbox(t.Context(), &sandboxv1.StopSandboxRequest{SandboxId: id})
	wantCode(t, err, codes.FailedPrecondition, "sandbox is not running")
}
