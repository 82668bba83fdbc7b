package isolatetest

import (
	"io"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
)

var restCases = []testCase{
	{name: "a leader that rests leads another command, which sees nothing of the first", run: testRest},
	{name: "a leader with descendants does not rest", run: testNoRest},
	{name: "what is done with an exec does not reach the next one of its leader", run: testReleased},
	{name: "a leader that is stopped or killed while it rests costs no command", run: testAttackResting},
}

// rested runs a script and waits until all its processes have ended. It returns the output
// without the final line feed.
func (b *box) rested(command guest.Command, script string) (string, *running) {
	b.t.Helper()
	command.ReuseLeader = true
	command.Argv = []string{"sh", "-c", script}
	r := b.begin(command)
	r.stdin.Close()
	out, err := io.ReadAll(r.stdout)
	if err != nil {
		b.t.Fatal(err)
	}
	errs, err := io.ReadAll(r.stderr)
	if err != nil {
		b.t.Fatal(err)
	}
	if exit := r.wait(); exit != (guest.Exit{UserTime: exit.UserTime, SystemTime: exit.SystemTime, MaxRSSBytes: exit.MaxRSSBytes}) {
		b.t.Fatalf("%s: %+v: %s", script, exit, errs)
	}
	r.gone()
	return strings.TrimSuffix(string(out), "\n"), r
}

func testRest(t *testing.T, factory Factory) {
	b := simple(t, factory)
	const state = `echo $PPID; pwd; umask; echo "[$X]"; cat; ls -l /proc/$PPID/fd /proc/self/fd | wc -l`
	first := guest.Command{Dir: "/tmp", Umask: 0o077, Env: append([]string{"X=1"}, basicEnv...)}
	b.rested(first, "cd /; umask 0; exec 7</etc/passwd; "+state)
	got, _ := b.rested(first, state)
	second, _ := b.rested(guest.Command{}, state)
	again, _ := b.rested(first, state)
	if got != again {
		t.Errorf("the same command differs: %q and %q", got, again)
	}
	leader, rest, _ := strings.Cut(got, "\n")
	if other, _, _ := strings.Cut(second, "\n"); other != leader {
		t.Errorf("the leader was %s, then %s", leader, other)
	}
	if want := "/tmp\n0077\n[1]\n"; !strings.HasPrefix(rest, want) {
		t.Errorf("got %q, want %q", rest, want)
	}
	if _, rest, _ = strings.Cut(second, "\n"); !strings.HasPrefix(rest, "/\n0022\n[]\n") {
		t.Errorf("the second command saw %q", rest)
	}
	if all, _ := b.rested(guest.Command{}, `set -- /proc/[0-9]*; echo $#`); all != "3" {
		t.Errorf("there are %s processes, not PID 1, the leader and the shell", all)
	}
}

func testNoRest(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{ReuseLeader: true, Argv: []string{"sh", "-c", `echo $PPID; sleep 1000 </dev/null >/dev/null 2>&1 &`}})
	leader := r.line()
	r.wait()
	if other, _ := b.rested(guest.Command{}, "echo $PPID"); other == leader {
		t.Error("a leader with a descendant leads another command")
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	r.gone()
}

func testReleased(t *testing.T, factory Factory) {
	b := simple(t, factory)
	leader, old := b.rested(guest.Command{}, "echo $PPID")
	r := b.begin(guest.Command{ReuseLeader: true, Argv: []string{"sh", "-c", "trap 'echo hit' TERM; echo $PPID; read x; echo $x"}})
	if got := r.line(); got != leader {
		t.Fatalf("the leader was %s, is %s", leader, got)
	}
	if err := old.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := old.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := old.Interrupt(unix.SIGTERM, unix.SIGTERM); err == nil {
		t.Error("an exec that is over was interrupted")
	}
	r.stdin.WriteString("well\n")
	if got := r.line(); got != "well" {
		t.Errorf("got %q", got)
	}
	r.wait()
	r.gone()
}

func testAttackResting(t *testing.T, factory Factory) {
	b := simple(t, factory)
	for _, attack := range []string{"STOP", "KILL"} {
		other := b.begin(guest.Command{Argv: []string{"sh", "-c", `while read p; do kill -` + attack + ` $p; echo done; done`}})
		leader, _ := b.rested(guest.Command{}, "echo $PPID")
		other.stdin.WriteString(leader + "\n")
		other.line()
		if got, _ := b.rested(guest.Command{}, "echo $PPID"); attack == "KILL" && got == leader {
			t.Error("a leader that was killed leads again")
		}
		other.stdin.Close()
		other.wait()
		other.gone()
	}
}
