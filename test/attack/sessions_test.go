package attack_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/test/harness"
)

// withSession is a sandbox that runs, with a session.
func withSession(t *testing.T) (*harness.Sandbox, *api.Client, *harness.Session) {
	t.Helper()
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--preset", "full-access", "--name", s.Name, "--", "sleep", "600"), 0)
	client := s.Client()
	return s, client, s.OpenSession(client, api.SessionOptions{})
}

// A session ends with its sandbox, whatever its commands have started.
func TestSessionDoesNotOutliveTheStop(t *testing.T) {
	s, _, x := withSession(t)
	doc := inspect(t, s, s.Name)
	x.Prints("trap '' TERM HUP INT; "+escape+"while ! ps -A -o args= | grep -q '[s]leep 4242'; do sleep 0.02; done", "escaped\n")
	done := x.Start(t.Context(), "trap '' TERM HUP INT; sleep 600", 0)
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	nothingLeft(t, s, doc)
	if got := <-done; got.Err == nil && !got.Exit.SessionClosed {
		t.Errorf("the command: %+v", got)
	}
	if closed := events(t, s, s.Name, "session_closed"); len(closed) != 1 || closed[0]["reason"] != "sandbox_stopped" {
		t.Errorf("session_closed: %v", closed)
	}
}

func TestSessionDoesNotOutliveTheSupervisor(t *testing.T) {
	s, _, x := withSession(t)
	doc := inspect(t, s, s.Name)
	x.Prints(escape+"while ! ps -A -o args= | grep -q '[s]leep 4242'; do sleep 0.02; done", "escaped\n")
	done := x.Start(t.Context(), "sleep 600", 0)
	if err := unix.Kill(doc.Running.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.Err == nil {
		t.Errorf("the command: %+v", got)
	}
	nothingLeft(t, s, doc)
}

// A session's commands inherit only their three streams: no descriptor of the control
// channel, of other sessions or of the supervisor.
func TestSessionDescriptors(t *testing.T) {
	s, client, x := withSession(t)
	other := s.OpenSession(client, api.SessionOptions{})
	other.Prints("sleep 600 & sleep 600 & :", "")
	x.Prints("sh -c 'for f in 0 1 2; do readlink /proc/self/fd/$f; done' | sed 's/:.*//'", "/dev/null\npipe\npipe\n")
	x.Prints("sh -c 'ls /proc/self/fd | wc -l'", "4\n") // ls reads the directory
	x.Prints(`for p in /proc/[0-9]*; do
	test "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" = "agentfense __exec " || continue
	readlink $p/fd/0 && echo "$p is open"
	cat $p/environ 2>/dev/null
done; :`, "")
}

// A command that breaks the control channel loses only its own session.
func TestSessionChannel(t *testing.T) {
	for _, script := range []string{
		`for f in /proc/$$/fd/1?; do echo 00000000000000000000000000000000 0 >$f; done; echo done`,
		`for f in /proc/$$/fd/1?; do head -c 100000 /dev/urandom >$f & done 2>/dev/null; sleep 0.1; echo done`,
		`for f in /proc/$$/fd/1?; do timeout 1 cat $f & done; sleep 0.2; echo done`,
		`exec 10>&- 11>&- 12>&- 13>&-; echo done`,
		`eval 'exec 10<&- 11<&-'; kill -STOP $$`,
		`for f in /proc/[0-9]*/fd/*; do timeout 1 sh -c "echo x >$f; cat $f" & done >/dev/null 2>&1; sleep 0.5`,
		`kill -KILL -1`,
		`command() { :; }; alias echo=:; echo() { :; }; printf 'done\n'`,
	} {
		t.Run(script, func(t *testing.T) {
			s, client, x := withSession(t)
			doc := inspect(t, s, s.Name)
			<-x.Start(t.Context(), script, time.Second)
			if err := client.CloseSession(t.Context(), x.ID); err != nil {
				t.Errorf("close: %v", err)
			}
			other := s.OpenSession(client, api.SessionOptions{})
			other.Prints("echo on", "on\n")
			if after := inspect(t, s, s.Name); after.Running == nil || *after.Running != *doc.Running {
				t.Errorf("supervisor and PID 1: %+v, want %+v", after.Running, doc.Running)
			}
		})
	}
}

// firstThread is the program that goes on without its first thread.
const firstThread = "lose the first thread"

// The first thread runs init and, if it is locked to it, main.
func init() {
	if os.Getenv(harness.ProgramVariable) == firstThread {
		runtime.LockOSThread()
	}
	programs["wait for the end of input"] = func([]string) int {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	}
	programs[firstThread] = func([]string) int {
		go func() {
			for parentOf(os.Getpid()) > 0 {
				stat, err := os.ReadFile("/proc/self/stat")
				if err == nil && strings.Contains(string(stat), ") Z ") {
					break
				}
			}
			if err := os.WriteFile("/tmp/lost", nil, 0o644); err != nil {
				os.Exit(1)
			}
			select {}
		}()
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
		return 1
	}
}

// The kernel lists a process without its first thread as a zombie. It still ends with its
// command.
func TestSessionEndsWhatLooksLikeAZombie(t *testing.T) {
	s := harness.New(t, binary, nil)
	d := s.Talk("wait for the end of input", nil)
	if got := d.Hear(); got != "ready" {
		t.Fatalf("heard %q", got)
	}
	x, other := s.OpenSession(s.Client(), api.SessionOptions{}), s.OpenSession(s.Client(), api.SessionOptions{})
	ctx, leave := context.WithCancel(t.Context())
	ended := x.Start(ctx, harness.ProgramVariable+"='"+firstThread+"' /opt/program & wait", 0)
	testenv.Eventually(t, "its first thread has ended", func() bool { return other.Run("test -e /tmp/lost").Exit.Code == 0 })
	leave()
	if got := <-ended; !errdefs.Is(got.Err, errdefs.Canceled) {
		t.Fatalf("the command: %+v", got)
	}
	x.Prints("grep -l '^Name:.program' /proc/[0-9]*/status 2>/dev/null | wc -l", "1\n") // that which waits
	wantCode(t, d.End(), 0)
}
