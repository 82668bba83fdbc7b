package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// A Role is the part that a process plays in a sandbox.
type Role string

// The roles of the processes of one sandbox, from the outermost in.
const (
	Supervisor Role = "supervisor"
	Bwrap      Role = "bwrap"
	Egress     Role = "egress" // with a network of named hosts, also a child of the supervisor
	Guest      Role = "guest"  // PID 1 inside
	Leader     Role = "leader" // of an exec
	Inside     Role = "inside" // below a leader
)

// inner is the role of what a process of a role starts.
var inner = map[Role]Role{Supervisor: Bwrap, Bwrap: Guest, Guest: Leader, Leader: Inside, Inside: Inside}

// A Process is a live process of a sandbox.
type Process struct {
	PID     int
	Role    Role
	Sandbox string // its name
}

// Processes finds the processes of all sandboxes below the state directory home,
// supervisors first. Those whose supervisor has ended are not found.
func Processes(home string) []Process {
	children := map[int][]int{}
	egress := map[int]bool{}
	var found []Process
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // ended meanwhile
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		words := strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
		if len(words) >= 4 && slices.Equal(words[1:3], []string{"__supervise", home}) {
			found = append(found, Process{pid, Supervisor, words[3]})
		}
		egress[pid] = len(words) == 2 && words[1] == "__egress"
	}
	for i := 0; i < len(found); i++ {
		for _, child := range children[found[i].PID] {
			role := inner[found[i].Role]
			if egress[child] && found[i].Role == Supervisor {
				role = Egress
			}
			found = append(found, Process{child, role, found[i].Sandbox})
		}
	}
	return found
}

// EndSupervisors ends the sandboxes below the state directory home, as a shutdown
// of the host does.
func EndSupervisors(t testing.TB, home string) {
	t.Helper()
	for _, p := range Processes(home) {
		if p.Role == Supervisor {
			if err := terminate(p.PID); err != nil {
				t.Errorf("end the supervisor of %s: %v", p.Sandbox, err)
			}
		}
	}
}

// terminate ends a process by SIGTERM and returns when it has ended.
func terminate(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it has ended already
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	has, err := pollfd.Wait(fd, unix.POLLIN, runTimeout)
	if err == nil && has == 0 {
		err = context.DeadlineExceeded
	}
	return err
}

// endLeft kills the processes of programs below dir, which tests have left, and
// returns their command lines.
func endLeft(dir string) []string {
	var left []string
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well formed
	for _, of := range dirs {
		exe, err := os.Readlink(of + "/exe")
		if err != nil || !strings.HasPrefix(exe, dir+"/") {
			continue // ended, another's, or a program that we may not look at
		}
		pid, _ := strconv.Atoi(filepath.Base(of))
		cmdline, _ := os.ReadFile(of + "/cmdline")
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			left = append(left, strings.ReplaceAll(strings.TrimSuffix(string(cmdline), "\x00"), "\x00", " "))
		}
	}
	return left
}
