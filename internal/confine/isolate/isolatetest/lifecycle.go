package isolatetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

var lifeCases = []testCase{
	{name: "a status is passed on", run: testStatus},
	{name: "a command that is not there is told from one that cannot run", run: testNotStarted},
	{name: "arguments of any size and content arrive", run: testArguments},
	{name: "a directory that is not there is named", run: testDirectory},
	{name: "the file mode mask is the exec's", run: testUmask},
	{name: "streams can be opened again by name", run: testReopenStreams},
	{name: "only pipes go in", run: testOnlyPipes},
	{name: "many commands run at once", run: testConcurrent},
	{name: "a signal reaches the command's process group", run: testSignal},
	{name: "a command ignores no signal", run: testIgnoredSignals},
	{name: "background processes outlive their exec", run: testBackground},
	{name: "a group is entered before PID 1 and the cgroup namespace are made", run: testPlaced, hostOnly: true},
	{name: "an exec is placed before it runs", run: testPlacedExec},
}

// testIgnoredSignals starts a sandbox as nohup and a shell's "&" do.
func testIgnoredSignals(t *testing.T, factory Factory) {
	ignored := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	signal.Ignore(ignored...)
	defer func() { // Reset undoes Notify alone
		signal.Notify(make(chan os.Signal, 1), ignored...)
		signal.Reset(ignored...)
	}()
	b := simple(t, factory)
	for range 2 { // the second may have the leader of the first
		// Not by a shell: busybox's ignores SIGQUIT.
		got, _, exit := b.run("grep", "SigIgn", "/proc/self/status")
		if exit.Code != 0 || strings.TrimSpace(got) != "SigIgn:\t0000000000000000" {
			t.Errorf("a command has %s, %+v", got, exit)
		}
	}
}

func testStatus(t *testing.T, factory Factory) {
	b := simple(t, factory)
	if _, _, exit := b.run("sh", "-c", "exit 42"); exit.Code != 42 || exit.Signal != 0 {
		t.Errorf("exit 42: got %+v", exit)
	}
	if _, _, exit := b.run("sh", "-c", "kill -USR1 $$"); exit.Signal != int(unix.SIGUSR1) {
		t.Errorf("kill: got %+v", exit)
	}
	_, _, exit := b.run("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	if exit.UserTime+exit.SystemTime <= 0 || exit.MaxRSSBytes < 100<<10 {
		t.Errorf("usage: got %+v", exit)
	}
}

func testNotStarted(t *testing.T, factory Factory) {
	b := simple(t, factory)
	b.must(`printf '#!/bin/sh\necho ran' > /tmp/plain; cp /tmp/plain /tmp/script; chmod +x /tmp/script; echo 'echo no shebang $1' > /tmp/bare; chmod +x /tmp/bare
		printf '#!/not/there\n' > /tmp/orphan; chmod +x /tmp/orphan`)
	tests := []struct {
		name string
		argv []string
		dir  string
		want error
		kind errdefs.Kind
	}{
		{"no such name in PATH", []string{"not-there"}, "/", guest.ErrNotFound, errdefs.NotFound},
		{"no such path", []string{"/not/there"}, "/", guest.ErrNotFound, errdefs.NotFound},
		{"a file without execute permission", []string{"/tmp/plain"}, "/", guest.ErrNotExecutable, errdefs.Denied},
		{"a directory", []string{"/tmp"}, "/", guest.ErrNotExecutable, errdefs.Denied},
		{"a script whose interpreter is missing", []string{"/tmp/orphan"}, "/", guest.ErrNotExecutable, errdefs.Denied},
		{"no such directory", []string{"true"}, "/not/there", guest.ErrDirectory, errdefs.Invalid},
		{"a relative directory", []string{"true"}, "tmp", nil, errdefs.Invalid},
		{"no command", nil, "/", nil, errdefs.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.tryBegin(guest.Command{Argv: tt.argv, Dir: tt.dir})
			if !errdefs.Is(err, tt.kind) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v (%v), want %v (%v)", err, errdefs.KindOf(err), tt.want, tt.kind)
			}
		})
	}
	for script, want := range map[string]string{"./script": "ran", "./bare x": "no shebang x"} {
		r := b.begin(guest.Command{Argv: strings.Fields(script), Dir: "/tmp"})
		if got := r.line(); got != want {
			t.Errorf("%s: got %q", script, got)
		}
	}
}

func testArguments(t *testing.T, factory Factory) {
	b := simple(t, factory)
	for _, size := range []int{0, 1, 32<<10 - 100, 32 << 10, 100 << 10} {
		arg := strings.Repeat("\xff", size)
		out, text, exit := b.run("sh", "-c", `printf %s "$1" | wc -c; printf %s "$2"`, "sh", arg, "a b\nc'd")
		if want := fmt.Sprintf("%d\na b\nc'd", size); out != want {
			t.Errorf("got %q %q %+v, want %q", out, text, exit, want)
		}
	}
	many := append([]string{"sh", "-c", "echo $#", "sh"}, slicesOf("x", 50000)...)
	if out, text, _ := b.run(many...); out != "50000" {
		t.Errorf("many arguments: got %q %q", out, text)
	}
	_, err := b.tryBegin(guest.Command{Argv: []string{"true", strings.Repeat("x", 200<<10)}})
	if !errors.Is(err, guest.ErrNotExecutable) || !errors.Is(err, unix.E2BIG) {
		t.Errorf("an argument beyond the kernel's bound: got %v", err)
	}
}

func slicesOf(s string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = s
	}
	return list
}

func testDirectory(t *testing.T, factory Factory) {
	b := simple(t, factory)
	if err := os.Mkdir(filepath.Join(b.view, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	r := b.begin(guest.Command{Argv: []string{"pwd"}, Dir: "/workspace/sub"})
	if got := r.line(); got != "/workspace/sub" {
		t.Errorf("got %s", got)
	}
	_, err := b.tryBegin(guest.Command{Argv: []string{"pwd"}, Dir: "/workspace/gone"})
	if err == nil || !strings.Contains(err.Error(), "/workspace/gone: no such file or directory") {
		t.Errorf("got %v, want the directory named", err)
	}
}

func testUmask(t *testing.T, factory Factory) {
	b := simple(t, factory)
	for mask, want := range map[int]string{0: "0022", 0o077: "0077"} {
		r := b.begin(guest.Command{Argv: []string{"sh", "-c", "umask"}, Umask: mask})
		if got := r.line(); got != want {
			t.Errorf("umask %o: got %s", mask, got)
		}
	}
}

func testReopenStreams(t *testing.T, factory Factory) {
	b := simple(t, factory)
	out, text, exit := b.run("sh", "-c", "echo out > /dev/stdout; echo err > /proc/self/fd/2")
	if out != "out" || text != "err" || exit.Code != 0 {
		t.Errorf("got %q %q %+v", out, text, exit)
	}
}

func testOnlyPipes(t *testing.T, factory Factory) {
	b := simple(t, factory)
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	named, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	for _, f := range []*os.File{dir, named} {
		command := guest.Command{Argv: []string{"true"}, TTY: -1, Files: [3]*os.File{f}}
		if _, err := b.conn.Exec(context.Background(), command, nil); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s went in: %v", f.Name(), err)
		}
	}
}

func testConcurrent(t *testing.T, factory Factory) {
	b := simple(t, factory)
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			out, _, exit := b.run("sh", "-c", fmt.Sprintf("echo %d; exit %d", i, i))
			if out != fmt.Sprint(i) || exit.Code != i {
				t.Errorf("command %d: got %q, %+v", i, out, exit)
			}
		})
	}
	wg.Wait()
}

func testSignal(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `
		trap 'echo got; exit 3' TERM; sleep 1000 & while [ "$(cat /proc/$!/comm)" != sleep ]; do :; done; echo ready; wait`}})
	r.line()
	if err := r.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := r.line(); got != "got" {
		t.Errorf("trap: %s", got)
	}
	if exit := r.wait(); exit.Code != 3 {
		t.Errorf("got %+v", exit)
	}
	r.gone() // the sleep got the signal too
	if err := r.Signal(unix.SIGTERM); err != nil {
		t.Errorf("signal after the end: %v", err)
	}
}

func testBackground(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `sleep 1000 </dev/null >/dev/null 2>&1 & echo $!`}})
	pid := r.line()
	if exit := r.wait(); exit.Code != 0 {
		t.Fatalf("got %+v", exit)
	}
	b.must("kill -0 " + pid)
	select {
	case <-r.Done():
		t.Error("the exec is done while a descendant lives")
	default:
	}
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	r.gone()
	b.refuse("kill -0 "+pid, "No such process")
}

func testPlaced(t *testing.T, factory Factory) {
	spec := newSpec(t)
	var placed int
	spec.Cgroup = func(pid int) error {
		placed = pid
		if children := childrenOf(t, pid); len(children) > 0 {
			t.Errorf("processes %v run already", children)
		}
		if got, want := cgroupNamespace(t, pid), cgroupNamespace(t, os.Getpid()); got != want {
			t.Errorf("its cgroup namespace is %s already, ours %s", got, want)
		}
		return nil
	}
	b := start(t, factory, spec)
	if children := childrenOf(t, placed); !slices.Equal(children, []int{b.proc.PID()}) {
		t.Errorf("placed %d, whose children are %v; PID 1 is %d", placed, children, b.proc.PID())
	}
	if got, ours := cgroupNamespace(t, b.proc.PID()), cgroupNamespace(t, os.Getpid()); got == ours {
		t.Errorf("PID 1 is in our own cgroup namespace %s", ours)
	}
	no := errors.New("no room")
	spec.Cgroup = func(pid int) error { placed = pid; return no }
	if _, err := tryStart(t, factory, spec); !errors.Is(err, no) {
		t.Errorf("got %v, want %v", err, no)
	}
	if err := unix.Kill(placed, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d was left: %v", placed, err)
	}
}

// childrenOf reads the parent of every process from /proc/PID/stat.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")) // it may have ended
		fields := strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			children = append(children, pid)
		}
	}
	return children
}

func cgroupNamespace(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func testPlacedExec(t *testing.T, factory Factory) {
	b := simple(t, factory)
	command := guest.Command{Argv: []string{"touch", "/workspace/ran"}, Env: basicEnv, TTY: -1}
	no := errors.New("no room")
	var placed int
	_, err := b.conn.Exec(context.Background(), command, func(pid int) error { placed = pid; return no })
	if !errors.Is(err, no) {
		t.Errorf("got %v, want %v", err, no)
	}
	b.must("true") // its leader ends soon; its command never ran
	if _, err := os.Stat(filepath.Join(b.view, "ran")); err == nil {
		t.Error("the command ran in spite of it")
	}
	x, err := b.conn.Exec(context.Background(), command, func(pid int) error { placed = pid; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if x.HostPID() != placed {
		t.Errorf("placed %d, started %d", placed, x.HostPID())
	}
	<-x.Done()
}
