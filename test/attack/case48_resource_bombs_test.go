package attack_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/linetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// forkBomb forks until the kernel says no, and says how far it came.
var forkBomb = program("fork bomb", func(in *inside, _ []string) {
	const plenty = 500
	forks, err := 0, error(nil)
	for ; forks < plenty; forks++ {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			err = errno
			break
		}
		if pid == 0 {
			for {
				_, _, _ = syscall.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0) // sleeps for good
			}
		}
	}
	in.errno("the last fork", err, unix.EAGAIN)
	if forks >= 40 {
		in.fail("%d processes under --pids 40", forks)
	}
})

func TestForkBomb(t *testing.T) {
	testenv.Cgroup(t, "pids")
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--name", "other"), 0)
	t.Cleanup(func() { s.Agentfense("stop", "other") })
	passes(t, s, forkBomb, nil, "--pids", "40")
	found := events(t, s, s.Name, "resource_limit_exceeded")
	if len(found) != 1 || found[0]["resource"] != "pids.max" {
		t.Errorf("audit: %v", found)
	}
	wantCode(t, s.Agentfense("exec", "other", "--", "true"), 0)
	nothingLeft(t, s, inspect(t, s, s.Name))
}

// The disk limit applies to any kind of data, and existing files stay usable.
func TestDiskBomb(t *testing.T) {
	const limit = 1 << 20
	tests := []struct{ name, script string }{
		{"a file", "head -c 9000000 /dev/zero >f"},
		{"directories", "i=0; while [ $i -lt 3000 ] && mkdir d$i; do i=$((i+1)); done"},
		{"empty files", "i=0; while [ $i -lt 3000 ] && : >f$i; do i=$((i+1)); done"},
		{"long links", "i=0; t=$(printf 't%.0s' $(seq 4000)); while [ $i -lt 3000 ] && ln -s $t l$i; do i=$((i+1)); done"},
		{"refused copies", "mkdir own; i=0; while : >own/f$i; do i=$((i+1)); done; for i in $(seq 3000); do : >>way/down/f; done"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"way/down/f": "x", "g": "x"})
			r := s.Run("("+tt.script+") 2>/dev/null; rm g && cat way/down/f", "--preset", "full-access", "--disk", strconv.Itoa(limit))
			if r.Code != 0 || r.Stdout != "x" {
				t.Errorf("afterwards: exit code %d, printed %q\n%s", r.Code, r.Stdout, r.Stderr)
			}
			var bytes, inodes int64
			err := filepath.WalkDir(filepath.Join(s.Home, "sandboxes"), func(path string, _ fs.DirEntry, err error) error {
				var st unix.Stat_t
				if err == nil {
					err = unix.Lstat(path, &st)
				}
				bytes += st.Blocks * 512
				inodes++
				return err
			})
			if err != nil || bytes > 2*limit || inodes > limit/512 {
				t.Errorf("the state has %d bytes, %d inodes; %v", bytes, inodes, err)
			}
		})
	}
}

// All kinds of memory use count for the sandbox.
func TestMemoryBomb(t *testing.T) {
	testenv.Cgroup(t, "memory")
	tests := []struct{ name, script string }{
		{"by a process", "head -c 300000000 /dev/zero | tail"},
		{"by shared memory", "exec head -c 300000000 /dev/zero > /dev/shm/full"},
		{"by a private /tmp", "exec head -c 300000000 /dev/zero > /tmp/full"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, nil)
			wantCode(t, s.Agentfense("run", "--detach", "--name", "other"), 0)
			t.Cleanup(func() { s.Agentfense("stop", "other") })
			r := s.Run(tt.script, "--memory", "64M")
			if r.Code != 137 || !strings.Contains(r.Stderr, "--memory") {
				t.Errorf("exit code %d, want 137 with the reason; %s", r.Code, r.Stderr)
			}
			found := events(t, s, s.Name, "resource_limit_exceeded")
			if len(found) == 0 || found[0]["resource"] != "memory.max" {
				t.Errorf("audit: %v", found)
			}
			wantCode(t, s.Agentfense("exec", "other", "--", "true"), 0)
			nothingLeft(t, s, inspect(t, s, s.Name))
		})
	}
}

// The kernel may kill another process than the one that fills the memory. If it kills PID 1
// the whole sandbox ends, and the reason is still reported.
func TestMemoryBombThatEndsTheSandbox(t *testing.T) {
	testenv.Root(t)
	testenv.Cgroup(t, "memory")
	for range 3 {
		s := harness.New(t, binary, nil)
		cmd := s.Command(t.Context(), "run", "--name", s.Name, "--memory", "64M", "--", "sh", "-c",
			"echo ready; read go; exec head -c 300000000 /dev/zero > /tmp/full")
		d := linetest.Start(t, cmd)
		d.Hear()
		doc := inspect(t, s, s.Name)
		if err := os.WriteFile("/proc/"+itoa(doc.Running.InitPID)+"/oom_score_adj", []byte("1000"), 0); err != nil {
			t.Fatal(err)
		}
		d.Say("go")
		_, stderr, _ := d.End() // the code says how
		if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(stderr, "--memory") {
			t.Errorf("exit code %d, want 137 with the reason; %s", code, stderr)
		}
		if found := events(t, s, s.Name, "resource_limit_exceeded"); len(found) != 1 || found[0]["resource"] != "memory.max" {
			t.Errorf("audit: %v", found)
		}
		if found := events(t, s, s.Name, "command_executed"); len(found) != 1 || found[0]["oom_killed"] != true {
			t.Errorf("audit: %v", found)
		}
		nothingLeft(t, s, doc)
	}
}

// A spinning command is slowed down by its limit and ended by its time-out, and another
// sandbox can run beside it.
func TestProcessorSpin(t *testing.T) {
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("create", s.Name, "--cpus", "0.2"), 0)
	doc := inspect(t, s, s.Name)
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "sh", "-c", "while :; do :; done & while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the kernel has held it back", func() bool {
		for _, group := range cgroupsOf(t, doc) {
			stat, _ := os.ReadFile(group + "/cpu.stat") // another controller's hierarchy has none
			for line := range strings.Lines(string(stat)) {
				if n, ok := strings.CutPrefix(line, "nr_throttled "); ok && strings.TrimSpace(n) != "0" {
					return true
				}
			}
		}
		return false
	})
	wantCode(t, s.Agentfense("run", "--name", "other", "--", "true"), 0)
	wantCode(t, s.Agentfense("stop", s.Name), 0)
	_ = cmd.Wait() // stopped
	nothingLeft(t, s, doc)

	r := s.Agentfense("run", "--name", "spin", "--timeout", "300ms", "--", "sh", "-c", "trap : TERM INT HUP; while :; do :; done")
	if r.Code != 124 || !strings.Contains(r.Stderr, "--timeout") {
		t.Errorf("exit code %d, want 124; %s", r.Code, r.Stderr)
	}
}

// Neither the client nor the supervisor stores output that the reader does not take.
func TestOutputFloodIsNotStored(t *testing.T) {
	const flood, most = 1 << 30, 80 << 10 // bytes, KiB
	s := harness.New(t, binary, nil)
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "sh", "-c",
		"head -c "+strconv.Itoa(flood)+" /dev/zero; read end")
	d := linetest.Start(t, cmd)
	if n, err := io.CopyN(io.Discard, d.Out, flood); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	for who, pid := range map[string]int{"client": cmd.Process.Pid, "supervisor": inspect(t, s, s.Name).Running.PID} {
		if got := peakKiB(t, pid); got > most {
			t.Errorf("the %s held %d KiB at most, want no more than %d", who, got, most)
		}
	}
	d.Say("")
	if _, stderr, err := d.End(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
}

// peakKiB is the most memory a process ever held at once.
func peakKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	n, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A caller that never closes its end of the input holds nothing up.
func TestOpenInputDoesNotHang(t *testing.T) {
	s := harness.New(t, binary, nil)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "true")
	cmd.Stdin = read
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A reader that goes away ends the flood as it would without a sandbox.
func TestClosedOutputEndsTheCommand(t *testing.T) {
	s := harness.New(t, binary, nil)
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "cat", "/dev/zero")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, stdout, 1); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	_ = cmd.Wait() // the state tells
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Signal() != unix.SIGPIPE && status.ExitStatus() != 128+int(unix.SIGPIPE) {
		t.Errorf("%s, want SIGPIPE", cmd.ProcessState)
	}
	nothingLeft(t, s, inspect(t, s, s.Name))
}

// takeTerminals opens terminals until the kernel says no.
var takeTerminals = program("take terminals", func(in *inside, _ []string) {
	const many = 256 // with these a sandbox has to do
	taken, err := 0, error(nil)
	for ; err == nil && taken <= many; taken++ {
		_, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	in.errno("open one more", err, unix.ENOSPC)
	if taken < many/2 {
		in.fail("%d terminals could be opened", taken)
	}
})

// Terminals are counted for the whole host (kernel.pty.max): one sandbox cannot
// take them from all others.
func TestTerminalsAreLeftToOthers(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		passes(t, harness.New(t, binary, nil, who...), takeTerminals, nil)
	})
}
