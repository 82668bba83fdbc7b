package attack_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// patience bounds waiting for what must come, so that its absence fails.
const patience = 30 * time.Second

// wantCode fails the test unless the command ended with code.
func wantCode(t *testing.T, r harness.Result, code int) {
	t.Helper()
	if r.Code != code {
		t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", r.Code, code, r.Stdout, r.Stderr)
	}
}

// inspection is what these tests read of `inspect --json`.
type inspection struct {
	Record struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		HostUID int    `json:"host_uid"`
	} `json:"record"`
	Status  string `json:"status"`
	Running *struct {
		PID     int `json:"pid"`
		InitPID int `json:"init_pid"`
	} `json:"running"`
	Directory string `json:"directory"`
}

func inspect(t *testing.T, s *harness.Sandbox, name string) inspection {
	t.Helper()
	r := s.Agentfense("inspect", name, "--json")
	wantCode(t, r, 0)
	var doc inspection
	if err := json.Unmarshal([]byte(r.Stdout), &doc); err != nil {
		t.Fatalf("inspect: %v\n%s", err, r.Stdout)
	}
	return doc
}

// processesOf lists the live processes of a sandbox: its supervisor, and all
// that has its host uid.
func processesOf(t *testing.T, s *harness.Sandbox, doc inspection) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status") // gone meanwhile: empty
		if strings.Contains(string(status), "\nState:\tZ") {
			continue
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline")
		ours := strings.Contains(string(cmdline), s.Home+"\x00"+doc.Record.Name+"\x00")
		if uid := doc.Record.HostUID; uid != 0 {
			ours = ours || strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t", uid))
		}
		if ours {
			found = append(found, dir+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// cgroupsOf lists the cgroups that bear the sandbox's id.
func cgroupsOf(t *testing.T, doc inspection) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), doc.Record.ID) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mountsOf lists the mounts below a sandbox's state that any process sees.
func mountsOf(t *testing.T, s *harness.Sandbox, name string) []string {
	t.Helper()
	tables, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, table := range tables {
		mounts, _ := os.ReadFile(table) // gone meanwhile: empty
		if strings.Contains(string(mounts), s.Home+"/sandboxes/"+name+"/") {
			found = append(found, table)
		}
	}
	return found
}

// nothingLeft waits until no process, mount or cgroup of the sandbox is left.
func nothingLeft(t *testing.T, s *harness.Sandbox, doc inspection) {
	t.Helper()
	testenv.Eventually(t, "no process is left", func() bool { return len(processesOf(t, s, doc)) == 0 })
	if left := mountsOf(t, s, doc.Record.Name); len(left) > 0 {
		t.Errorf("a mount is left in %v", left)
	}
	testenv.Eventually(t, "no cgroup is left", func() bool { return len(cgroupsOf(t, doc)) == 0 })
}

// events returns the sandbox's audit records of one kind.
func events(t *testing.T, s *harness.Sandbox, name, kind string) []map[string]any {
	t.Helper()
	r := s.Agentfense("audit", name, "--json")
	wantCode(t, r, 0)
	var found []map[string]any
	for line := range strings.Lines(r.Stdout) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("audit record %q: %v", line, err)
		}
		if record["event"] == kind {
			found = append(found, record)
		}
	}
	return found
}

// A probe tries one thing inside a sandbox. Each case adds its own.
type probe func() error

var probes = map[string]probe{}

func init() {
	programs["probe"] = func(names []string) int {
		for _, name := range names {
			fmt.Printf("%s: %s\n", name, answer(probes[name]()))
		}
		return 0
	}
}

// answer names an error by its errno.
func answer(err error) string {
	if err == nil {
		return "done"
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// wantAnswers runs probes inside and compares what each was answered, one word
// or several of which one must be.
func wantAnswers(t *testing.T, s *harness.Sandbox, want map[string]string, flags ...string) {
	t.Helper()
	var names []string
	for name := range want {
		if probes[name] == nil {
			t.Fatalf("no probe %q", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	r := s.RunProgram("probe", names, flags...)
	wantCode(t, r, 0)
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if len(lines) != len(names) {
		t.Fatalf("%d answers to %d probes:\n%s", len(lines), len(names), r.Stdout)
	}
	for i, name := range names {
		_, got, _ := strings.Cut(lines[i], ": ")
		if !slices.Contains(strings.Fields(want[name]), got) {
			t.Errorf("%s: got %s, want %s", name, got, want[name])
		}
	}
}

// hasLive reports whether the process lives and is no zombie.
func hasLive(pid int) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	return err == nil && !strings.Contains(string(status), "\nState:\tZ")
}

// syscallError is a raw system call's answer.
func syscallError(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := syscall.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
