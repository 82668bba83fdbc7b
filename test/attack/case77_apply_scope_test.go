package attack_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// A token with the right to run commands but not to apply cannot change an uploaded
// codebase: neither at the end of its command, nor with the next command of a caller who
// may apply, nor at the end of the sandbox or of the server.
func TestATokenWithoutTheScopeApplyChangesNoCodebase(t *testing.T) {
	testenv.FUSE(t)
	testenv.Bwrap(t)
	s := newServed(t)
	s.serve()
	agent := s.token("read,exec")
	s.must(s.admin, "create", "box", "--codebase", s.codebase, "--preset", "full-access")
	s.must(s.admin, "run", "--name", "box", "--detach")

	for _, attempt := range []string{
		"echo evil > f",
		"echo evil > new; mkdir dir; ln -s /etc dir/link",
		"mv f moved",
		"(while ! test -e signal; do sleep 0.01; done; echo evil > late) > /dev/null 2>&1 & true",
	} {
		s.must(agent, "exec", "box", "--", "sh", "-c", attempt)
		s.unchanged("after the command " + attempt)
	}
	s.must(agent, "run", "--name", "box", "--detach", "--", "sh", "-c", "while ! test -e signal; do sleep 0.01; done; echo evil > late; touch done")
	s.must(s.admin, "exec", "box", "--", "sh", "-c", "touch signal; while ! test -e done; do sleep 0.01; done")
	s.unchanged("after somebody else's command")
	s.must(s.admin, "apply", "box", "signal")
	s.must(s.admin, "exec", "box", "--", "touch", "more")
	s.unchanged("after an apply of a part", "signal")
	s.end(unix.SIGKILL)
	s.serve()
	s.unchanged("after the end of the server", "signal")
	s.must(agent, "stop", "box")
	s.unchanged("after the end of the sandbox", "signal")
	s.end(unix.SIGTERM)
	s.serve()
	s.unchanged("after both", "signal")

	if out, err := s.try(agent, "apply", "box"); err == nil || !strings.Contains(out, "scope apply is missing") {
		t.Errorf("apply without the scope: %v\n%s", err, out)
	}
	s.must(s.admin, "apply", "box")
	if got := s.content()["late"]; got != "evil\n" {
		t.Errorf("what was applied is not there: late is %q", got)
	}
}

// served is a server with a codebase of one file f.
type served struct {
	t                       *testing.T
	program, home, codebase string
	admin                   string // a token
	flags                   []string
	server                  *exec.Cmd
	endpoint                string
}

func newServed(t *testing.T) *served {
	t.Helper()
	program, err := harness.BuildWithServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, program: program, home: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(func() {
		if s.server != nil {
			s.must(s.admin, "rm", "--force", "box")
			s.end(unix.SIGTERM)
		}
	})
	return s
}

// serve starts the server, and makes the codebase the first time.
func (s *served) serve() {
	s.t.Helper()
	cmd := exec.Command(s.program, append([]string{"serve"}, s.flags...)...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + s.home, "AGENTFENSE_HOME=" + s.home}, wire.AnyPorts...)
	started, err := wire.Serve(cmd, s.home)
	if err != nil {
		s.t.Fatal(err)
	}
	s.server, s.endpoint, s.admin = cmd, started.Addr, started.Token
	if s.codebase == "" {
		source := harness.New(s.t, s.program, map[string]string{"f": "old\n"}).Source
		out := s.must(s.admin, "codebase", "push", source, "--json")
		if s.codebase, err = wire.Find(out, "id"); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *served) end(signal unix.Signal) {
	s.t.Helper()
	if err := s.server.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
	_ = s.server.Wait() // killed, or ended
	s.server = nil
}

// try runs a verb on the server with a token.
func (s *served) try(token string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	if s.t.Context().Err() != nil { // cleaning up
		ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	}
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	client := filepath.Join(filepath.Dir(s.home), "client")
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + client, "AGENTFENSE_HOME=" + client, "AGENTFENSE_ENDPOINT=" + s.endpoint, "AGENTFENSE_TOKEN=" + token}
	if token == "" {
		cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + s.home, "AGENTFENSE_HOME=" + s.home}
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return string(out) + errs.String(), err
	}
	return string(out), nil
}

// must is try that succeeds.
func (s *served) must(token string, args ...string) string {
	s.t.Helper()
	out, err := s.try(token, args...)
	if err != nil {
		s.t.Fatalf("agentfense %q: %v\n%s", args, err, out)
	}
	return out
}

// token makes a token on the server's host.
func (s *served) token(scopes string) string {
	s.t.Helper()
	return strings.TrimSpace(s.must("", "token", "create", "--scope", scopes))
}

// content is what the codebase holds.
func (s *served) content() map[string]string {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "out")
	s.must(s.admin, "codebase", "pull", s.codebase, dir)
	return contents(s.t, dir)
}

// unchanged checks that the codebase holds f as it was, and also what may have
// been added.
func (s *served) unchanged(when string, added ...string) {
	s.t.Helper()
	tree := s.content()
	if got := tree["f"]; got != "old\n" {
		s.t.Errorf("%s: f is %q", when, got)
	}
	for _, path := range []string{"new", "dir", "moved", "late", "done", "more"} {
		if got, is := tree[path]; is {
			s.t.Errorf("%s: the codebase has %s: %q", when, path, got)
		}
	}
	for _, path := range added {
		if _, is := tree[path]; !is {
			s.t.Errorf("%s: the codebase has no %s", when, path)
		}
	}
}
