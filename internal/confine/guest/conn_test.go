package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// hostileVerb makes the test binary run as a hostile sandbox.
const hostileVerb = "__hostile"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == hostileVerb {
		hostile[os.Args[2]]()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// say sends a message with descriptors and panics if it cannot: the supervisor
// has hung up.
func say(fd int, message []byte, rights ...int) {
	if err := unix.Sendmsg(fd, message, unix.UnixRights(rights...), nil, unix.MSG_NOSIGNAL); err != nil {
		os.Exit(0)
	}
}

// asLeader takes PID 1's request and returns the number of the exec and the
// leader's socket.
func asLeader() (uint32, int) {
	say(socketFD, encode(msgReady, 0))
	message, fds, err := receiveRaw(socketFD, make([]byte, maxIncoming))
	if err != nil {
		os.Exit(0)
	}
	fields, _ := decode(message[:5], msgSpawn, 1)
	return fields[0], fds[0]
}

func untilEnd(fd int) {
	for {
		if _, _, err := receiveRaw(fd, make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

// started returns a leader that starts its command and then sends messages.
func started(messages ...[]byte) func() {
	return func() {
		_, link := asLeader()
		say(link, encode(msgHello))
		say(link, encode(msgStarted))
		for _, message := range messages {
			say(link, message)
		}
		untilEnd(link)
	}
}

// hostile are sandboxes, by their behaviour.
var hostile = map[string]func(){
	"says nothing and goes":     func() {},
	"says something unknown":    func() { say(socketFD, []byte{200}); untilEnd(socketFD) },
	"says nothing in a message": func() { say(socketFD, nil); untilEnd(socketFD) },
	"says too much":             func() { say(socketFD, make([]byte, maxIncoming+1)); untilEnd(socketFD) },
	"is ready twice":            func() { say(socketFD, encode(msgReady, 0)); say(socketFD, encode(msgReady, 0)); untilEnd(socketFD) },
	"ends what never was":       func() { say(socketFD, encode(msgReady, 0)); say(socketFD, encode(msgEnded, 7)); untilEnd(socketFD) },
	"reports half an attempt": func() {
		say(socketFD, encode(msgReady, 0))
		say(socketFD, encode(msgAttempt, 40, 1, 0, 1))
		untilEnd(socketFD)
	},
	"sends a descriptor": func() { say(socketFD, encode(msgReady, 0), 0, 1); untilEnd(socketFD) },
	"refuses": func() {
		id, _ := asLeader()
		say(socketFD, encode(msgRefuse, id, uint32(unix.EAGAIN)))
		untilEnd(socketFD)
	},
	"has a leader that goes": func() {
		id, link := asLeader()
		unix.Close(link)
		say(socketFD, encode(msgEnded, id))
		untilEnd(socketFD)
	},
	"has a leader that goes without a word of PID 1": func() { _, link := asLeader(); unix.Close(link); os.Exit(0) },
	"has a leader that starts too early":             func() { _, link := asLeader(); say(link, encode(msgStarted)); untilEnd(link) },
	"has a leader that sends a descriptor":           func() { _, link := asLeader(); say(link, encode(msgHello), 0); untilEnd(link) },
	"has a leader that fails in an unknown way": func() {
		_, link := asLeader()
		say(link, encode(msgHello))
		say(link, []byte{byte(msgFailed), 77, 0, 0, 0, 0})
		untilEnd(link)
	},
	"has a leader that never answers":                  func() { _, link := asLeader(); say(link, encode(msgHello)); untilEnd(link) },
	"has a command that stops instead of ending":       started(encodeExited(0x137f, &unix.Rusage{})),
	"has a leader that answers what nobody asked":      started(encode(msgAnswer, 1, 2, 0), encode(msgAnswer, 1, 2, 0)),
	"has a leader that is idle while its command runs": started(encode(msgIdle)),
	"has a leader that never wakes":                    started(encodeExited(3<<8, &unix.Rusage{}), encode(msgIdle)),
	"has a leader that is idle unasked":                started(encodeExited(3<<8, &unix.Rusage{}), encode(msgIdle)),
	"has a command that ends twice":                    started(encodeExited(3<<8, &unix.Rusage{}), encodeExited(4<<8, &unix.Rusage{})),
}

// play starts a hostile sandbox.
func play(t *testing.T, name string) *Conn {
	t.Helper()
	ours, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", hostileVerb, name)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	c := NewConn(ours, nil)
	t.Cleanup(func() {
		c.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return c
}

func TestHostileInitIsCutOff(t *testing.T) {
	for name, kind := range map[string]errdefs.Kind{
		"says nothing and goes": errdefs.Unavailable, "says nothing in a message": errdefs.Internal,
		"says something unknown": errdefs.Internal, "says too much": errdefs.Internal, "is ready twice": errdefs.Internal,
		"ends what never was": errdefs.Internal, "sends a descriptor": errdefs.Internal,
		"reports half an attempt": errdefs.Internal,
	} {
		t.Run(name, func(t *testing.T) {
			before := descriptors(t)
			c := play(t, name)
			select {
			case <-c.Done():
			case <-time.After(time.Minute):
				t.Fatal("the connection goes on")
			}
			if !errdefs.Is(c.Err(), kind) {
				t.Errorf("got %v (%v), want %v", c.Err(), errdefs.KindOf(c.Err()), kind)
			}
			if after := descriptors(t); after > before+1 { // the child's pidfd
				t.Errorf("%d descriptors before, %d after", before, after)
			}
			if err := c.Ready(context.Background()); !slices.Contains([]string{"is ready twice", "ends what never was", "reports half an attempt"}, name) && err == nil {
				t.Error("ready")
			}
		})
	}
}

func TestHostileLeaderIsRefused(t *testing.T) {
	for name, kind := range map[string]errdefs.Kind{
		"refuses": errdefs.Exhausted, "has a leader that goes": errdefs.Exhausted,
		"has a leader that goes without a word of PID 1": errdefs.Unavailable,
		"has a leader that starts too early":             errdefs.Internal,
		"has a leader that sends a descriptor":           errdefs.Internal,
		"has a leader that fails in an unknown way":      errdefs.Internal,
	} {
		t.Run(name, func(t *testing.T) {
			c := play(t, name)
			_, err := c.Exec(context.Background(), Command{Argv: []string{"true"}, TTY: -1}, nil)
			if !errdefs.Is(err, kind) {
				t.Errorf("got %v (%v), want %v", err, errdefs.KindOf(err), kind)
			}
		})
	}
}

func TestSlowLeaderIsGivenUp(t *testing.T) {
	c := play(t, "has a leader that never answers")
	if err := c.Ready(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := c.Exec(ctx, Command{Argv: []string{"true"}, TTY: -1}, func(int) error { cancel(); return nil })
	if !errdefs.Is(err, errdefs.Canceled) {
		t.Errorf("got %v, want it canceled", err)
	}
}

// In these two the hostile process is both PID 1 and leader, so that killing
// the leader ends the sandbox.
func TestHostileEndIsAKill(t *testing.T) {
	for name, want := range map[string]struct {
		exit Exit
		kind errdefs.Kind
	}{
		"has a command that stops instead of ending":       {Exit{Signal: int(unix.SIGKILL)}, errdefs.Unavailable},
		"has a command that ends twice":                    {Exit{Code: 3}, errdefs.Internal},
		"has a leader that answers what nobody asked":      {Exit{Signal: int(unix.SIGKILL)}, errdefs.Unavailable},
		"has a leader that is idle unasked":                {Exit{Code: 3}, errdefs.Internal},
		"has a leader that is idle while its command runs": {Exit{Signal: int(unix.SIGKILL)}, errdefs.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c := play(t, name)
			rest := name == "has a leader that is idle while its command runs"
			x, err := c.Exec(context.Background(), Command{Argv: []string{"true"}, TTY: -1, ReuseLeader: rest}, nil)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-x.Done():
			case <-time.After(time.Minute):
				t.Fatal("the exec goes on")
			}
			exit, err := x.Wait(context.Background())
			if exit != want.exit || err != nil && !errdefs.Is(err, want.kind) {
				t.Errorf("got %+v, %v, want %+v", exit, err, want.exit)
			}
			<-c.Done() // the hostile process was killed
		})
	}
}

func TestALeaderThatNeverWakesIsKilled(t *testing.T) {
	c := play(t, "has a leader that never wakes")
	command := Command{Argv: []string{"true"}, TTY: -1, ReuseLeader: true}
	x, err := c.Exec(context.Background(), command, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-x.Done()
	if exit, err := x.Wait(context.Background()); exit.Code != 3 || err != nil {
		t.Errorf("got %+v, %v", exit, err)
	}
	// It is PID 1, too, so no other leader can replace it.
	if _, err := c.Exec(context.Background(), command, nil); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("got %v", err)
	}
	<-c.Done()
}

func TestMalformedCommandsAreRefused(t *testing.T) {
	c := &Conn{}
	for _, command := range []Command{
		{},
		{Argv: []string{""}},
		{Argv: []string{"a\x00b"}},
		{Argv: []string{"a"}, Env: []string{"A=\x00"}},
		{Argv: []string{"a"}, Dir: "relative"},
		{Argv: []string{"a"}, Files: [3]*os.File{os.Stdin}},
	} {
		if _, err := c.Exec(context.Background(), command, nil); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%+v: got %v", command, err)
		}
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	failed := func(at stage, errno unix.Errno) []byte {
		return []byte{byte(msgFailed), byte(at), byte(errno), 0, 0, 0}
	}
	tests := []struct {
		message []byte
		want    string
	}{
		{failed(stageLookup, unix.ENOENT), `exec "tool": command not found`},
		{failed(stageLookup, unix.EACCES), `exec "tool": cannot execute: permission denied`},
		{failed(stageExec, unix.ENOEXEC), `exec "tool": cannot execute: exec format error`},
		{failed(stageExec, unix.EAGAIN), `exec: start a process: resource temporarily unavailable; the sandbox may be at its limit of processes or memory`},
		{failed(stageDirectory, unix.ENOTDIR), `exec "tool": cannot enter directory /src: not a directory`},
		{failed(stageTerminal, unix.EIO), `exec: open terminal: input/output error`},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(checkStarted(tt.message, Command{Argv: []string{"tool"}, Dir: "/src"})); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
