package attack_test

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// crash ends programs in ways for which the kernel dumps their memory, after it has tried to raise
// the limit, and lists what is there then.
const crash = `ulimit -c unlimited 2>/dev/null; ulimit -S -c unlimited 2>/dev/null
for s in SEGV ABRT QUIT BUS; do sh -c "kill -$s \$\$" 2>/dev/null; echo $s; done
ls -A; ls -A /tmp | grep -v ^TestNoCore # where the source is
true`

// A crash writes the memory of no process, neither into the workspace nor to the program that the
// host's core_pattern names: with a limit of one byte the kernel does neither (fs/coredump.c).
func TestNoCoreDumps(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		prints(t, s, crash, "SEGV\nABRT\nQUIT\nBUS\n", "--preset", "full-access")
		// With a network the egress process is one of them, as a child of the supervisor.
		wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name, "--allow-net", "example.com", "--", "sleep", "600"), 0)
		found := map[harness.Role]int{}
		for _, p := range harness.Processes(s.Home) {
			found[p.Role]++
			limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID))
			if err != nil || !noDump.Match(limits) {
				t.Errorf("the %s: %v\n%s", p.Role, err, limits)
			}
		}
		if found[harness.Supervisor] != 1 || found[harness.Bwrap] != 1 || found[harness.Egress] != 1 || found[harness.Guest] != 1 {
			t.Errorf("found %v", found)
		}
	})
}

// noDump is the line of proc_pid_limits(5) with a limit of 0 or 1.
var noDump = regexp.MustCompile(`(?m)^Max core file size +[01] +[01] +bytes`)
