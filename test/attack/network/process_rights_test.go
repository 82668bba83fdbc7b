package network_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// An attacker who takes over the egress process has a process without capabilities, of a user who
// is not root, that makes few system calls and gains no rights by executing a program.
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
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", egressOf(t, s)))
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
	})
}
