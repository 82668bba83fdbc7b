package attack_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

func init() { programs["trace leaders"] = traceLeaders }

// traceLeaders attacks each process that PID 1 starts, from the moment on at
// which it has a number, until the end of the input. It prints how many these
// were and what of them it got hold of.
func traceLeaders([]string) int {
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	fmt.Println("ready")
	seen, taken := map[int]bool{}, 0
	for !ended.Load() {
		last := lastPID()
		for pid := max(last-32, os.Getpid()+1); pid <= last; pid++ {
			if seen[pid] || parentOf(pid) != 1 {
				continue // or not there yet
			}
			seen[pid] = true
			if what := attack(pid); what != "" {
				taken++
				fmt.Fprintf(os.Stderr, "process %d: %s\n", pid, what)
			}
		}
	}
	fmt.Println(len(seen), taken)
	return 0
}

// lastPID is the latest number that a process or thread has got.
func lastPID() int {
	text, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
	if err != nil {
		panic(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		panic(err)
	}
	return pid
}

// parentOf is a process's parent, or -1 if there is no such process.
func parentOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return -1
	}
	var state string
	var parent int
	if _, err := fmt.Sscan(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), &state, &parent); err != nil {
		return -1
	}
	return parent
}

// attack tries for as long as a program takes to harden itself, and says what
// it got.
func attack(pid int) string {
	for start := time.Now(); time.Since(start) < 20*time.Millisecond; {
		// To open the memory takes what it takes to trace (proc_pid_mem(5)).
		fd, err := unix.Open("/proc/"+itoa(pid)+"/mem", unix.O_RDWR, 0)
		if err == nil {
			unix.Close(fd)
			return "its memory can be written"
		}
		if errors.Is(err, unix.ENOENT) {
			break // it is gone
		}
	}
	return ""
}

// leaders is how many are started while the attacker looks.
const leaders = 30

// wantNoneTraced starts leaders while the attacker runs. The long argument makes
// each leader end with its command, so that the next needs another.
func wantNoneTraced(t *testing.T, s *harness.Sandbox, flags ...string) {
	t.Helper()
	d := s.Talk("trace leaders", nil, flags...)
	if got := d.Hear(); got != "ready" {
		t.Fatalf("heard %q", got)
	}
	doc := inspect(t, s, s.Name)
	for range leaders {
		wantCode(t, s.Agentfense("exec", s.Name, "--", "true", strings.Repeat("x", 40<<10)), 0)
	}
	if os.Geteuid() == 0 {
		wantUnreadable(t, doc.Running.InitPID)
	}
	r := d.End()
	wantCode(t, r, 0)
	var seen, taken int
	if _, err := fmt.Sscan(r.Stdout, &seen, &taken); err != nil {
		t.Fatalf("%q: %v", r.Stdout, err)
	}
	if seen < leaders/2 {
		t.Errorf("the attacker saw %d of %d leaders", seen, leaders)
	}
	if taken > 0 {
		t.Errorf("%d of %d leaders were taken:\n%s", taken, seen, r.Stderr)
	}
}

// wantUnreadable checks what the kernel goes by: a program that the user of the
// process may not read is undumpable from its first instruction on.
func wantUnreadable(t *testing.T, pid int) {
	t.Helper()
	info, err := os.Stat("/proc/" + itoa(pid) + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o111 {
		t.Errorf("PID 1's program has mode %v", info.Mode())
	}
}

// A leader cannot be traced even while it starts, whatever Yama's setting.
func TestStartingLeadersCannotBeTraced(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		wantNoneTraced(t, harness.New(t, binary, nil, who...))
	})
}

// The same in a container.
func TestStartingLeadersOfContainersCannotBeTraced(t *testing.T) {
	testenv.Docker(t)
	t.Setenv("DOCKER_HOST", testenv.DockerDaemon(t))
	wantNoneTraced(t, harness.New(t, binary, nil), "--runtime", "docker", "--image", testenv.DockerImage)
}
