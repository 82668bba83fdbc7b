package terminal_test

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/wire"
)

// onServer starts a server and has all commands of the test ask it.
func onServer(t *testing.T) *harness.Sandbox {
	t.Helper()
	s := harness.New(t, binary, map[string]string{"file": "content\n"})
	home := t.TempDir()
	env := append(append(s.Command(t.Context()).Env, "AGENTFENSE_HOME="+home), wire.AnyPorts...)
	cmd := exec.Command(binary, "serve")
	cmd.Env = env
	server, err := wire.Serve(cmd, home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		rm := exec.Command(binary, "rm", "--force", s.Name)
		rm.Env = env
		if out, err := rm.CombinedOutput(); err != nil {
			t.Errorf("rm: %v: %s", err, out)
		}
	})
	t.Setenv("AGENTFENSE_ENDPOINT", server.Addr)
	t.Setenv("AGENTFENSE_TOKEN", server.Token)
	return s
}

func TestShellOnAServer(t *testing.T) {
	s := onServer(t)
	if r := s.Agentfense("create", s.Name, "--preset", "development"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	sc := start(t, s, "shell", s.Name, "--shell", "/bin/sh", "--env", "PS1")
	sc.expect("ready> ")
	sc.send("tty; stty size; echo $TERM in $PWD\n")
	sc.expect("/dev/pts/")
	sc.expect("30 100")
	sc.expect("xterm in /workspace")

	sc.resizeAndInterrupt()
	sc.send("cat file; echo still $((40+2))\n")
	sc.expect("content")
	sc.expect("still 42")
	sc.send("exit 5\n")
	sc.exits(5)
	if got := s.Agentfense("ls").Stdout; !strings.Contains(got, " stopped ") {
		t.Errorf("after the shell, ls shows %q", got)
	}
}

func TestTheShellOfAServerIsFound(t *testing.T) {
	testenv.Command(t, "bash")
	s := onServer(t)
	sc := start(t, s, "run", "--name", s.Name, "--env", "PS1", "--", "sh")
	sc.expect("ready> ")
	other := start(t, s, "shell", s.Name)
	other.send("echo ${BASH_VERSION:+this is bash} $((1+1))\n")
	other.expect("this is bash 2")
	other.send("exit\n")
	other.exits(0)
	// The other's end has not stopped the sandbox.
	sc.send("echo and on $((1+2))\n")
	sc.expect("and on 3")
	sc.send("exit 7\n")
	sc.exits(7)
}

func TestHangUpEndsTheCommandOnAServer(t *testing.T) {
	s := onServer(t)
	sc := start(t, s, "run", "--name", s.Name, "--", "sh", "-c", "echo up; sleep 1000")
	sc.expect("up")
	sc.tty.Close()
	ended := time.AfterFunc(patience, func() {
		t.Error("the command's agentfense did not end")
		sc.cmd.Process.Kill()
	})
	sc.cmd.Wait()
	ended.Stop()
	testenv.Eventually(t, "the command has ended", func() bool {
		return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "command_executed")
	})
}
