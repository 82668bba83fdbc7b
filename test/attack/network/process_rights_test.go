package network_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// An attacker who takes over the egress process has a process without capabilities, of a user who
// is not root, that makes few system calls and gains no rights by executing a program. It has no
// file of the host open but its own program, and what /proc has of it is root's.
func TestTheEgressProcessHasFewRights(t *testing.T) {
	harness.NeedWorld(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.Agentfense("run", "--name", s.Name, "--detach", "--allow-net", "example.com", "--", "sleep", "1000"); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		if r := s.Agentfense("exec", s.Name, "--", "getent", "ahosts", "example.com"); r.Code != 0 { // it serves
			t.Fatal(r.Stderr)
		}
		pid := egressOf(t, s)
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		const none = "0000000000000000"
		contains(t, "the status", string(status), "\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n",
			"\nCapPrm:\t"+none+"\n", "\nCapEff:\t"+none+"\n", "\nCapAmb:\t"+none+"\n")
		for _, id := range []string{"\nUid:\t0\t", "\nGid:\t0\t"} {
			if strings.Contains(string(status), id) {
				t.Errorf("the process has the id of root:\n%s", status)
			}
		}
		checkDescriptors(t, pid)
		checkReadable(t, pid)
	})
}

// harmless are what the descriptors of the process may lead to: its program is open for execution
// alone (O_PATH), which its filter of system calls refuses.
var harmless = regexp.MustCompile(`^(socket|pipe):\[[0-9]+\]$|^anon_inode:\[event(poll|fd)\]$|^/dev/null$|/programs/[0-9a-f]{32}$`)

func checkDescriptors(t *testing.T, pid int) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) < 5 {
		t.Fatalf("descriptors %v, %v", links, err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err == nil && !harmless.MatchString(to) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("descriptor %s leads to %s, %v", link, to, err)
		}
	}
}

// checkReadable has another process of the same user read what is root's of an undumpable one.
func checkReadable(t *testing.T, pid int) {
	t.Helper()
	for _, file := range []string{"mem", "environ", "fd/0"} {
		cmd := asUserOf(t, pid, "head", "-c1", fmt.Sprintf("/proc/%d/%s", pid, file))
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another process reads %s: %v, %q", file, err, out)
		}
	}
}
