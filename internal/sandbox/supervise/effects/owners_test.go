package effects

import (
	"context"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/linetest"
)

// family starts n processes, each the child of the one before and the last but
// one the parent of the last, and returns their pids.
func family(t *testing.T, n int) []int {
	t.Helper()
	const script = `if [ $1 -gt 2 ]; then sh -c "$0" "$0" $(($1 - 1)); exit; fi
exec 3<&0; cat <&3 & echo $!; wait`
	cmd := exec.CommandContext(context.Background(), "sh", "-c", script, script, strconv.Itoa(n))
	d := linetest.Start(t, cmd)
	t.Cleanup(func() {
		if _, stderr, err := d.End(); err != nil {
			t.Errorf("%v\n%s", err, stderr)
		}
	})
	last, err := strconv.Atoi(d.Hear())
	if err != nil {
		t.Fatal(err)
	}
	pids := []int{last}
	for pids[len(pids)-1] != cmd.Process.Pid {
		pids = append(pids, ProcessOf(pids[len(pids)-1]).Parent)
	}
	slices.Reverse(pids)
	if len(pids) != n {
		t.Fatalf("%d processes, want %d", len(pids), n)
	}
	return pids
}

type command struct{ name string }

// leading returns owners where leader leads x, and another command runs.
func leading(leader int, x *command) *Owners[*command] {
	o := &Owners[*command]{}
	o.Add(leader, x)
	o.Add(-1, &command{})
	return o
}

func TestNoCommandNoOwner(t *testing.T) {
	wantOwner(t, &Owners[*command]{}, 2, nil, "a process")
}

func wantOwner(t *testing.T, o *Owners[*command], pid int, want *command, who string) {
	t.Helper()
	if got := o.Find(pid); got != want {
		t.Errorf("%s belongs to %p, want %p", who, got, want)
	}
}

// TestWhatACommandLeftStaysNobodys: whose a process is that belongs to none is
// not searched for anew, nor beyond it for its children.
func TestWhatACommandLeftStaysNobodys(t *testing.T) {
	pids := family(t, 5)
	x, next := &command{"x"}, &command{"x"}
	o := leading(pids[0], x)
	wantOwner(t, o, pids[3], x, "a process while its command runs")
	o.End(x)
	wantOwner(t, o, pids[3], nil, "a process whose command has ended")
	o.Add(pids[0], next)
	wantOwner(t, o, pids[3], nil, "a process of an earlier command")
	wantOwner(t, o, pids[4], nil, "its child")
	wantOwner(t, o, pids[1], nil, "its ancestor")
}

// TestACommandEndsWithAllItsLeaders: what it left in an inner sandbox belongs to none either.
func TestACommandEndsWithAllItsLeaders(t *testing.T) {
	pids := family(t, 4)
	x := &command{"x"}
	o := leading(pids[0], x)
	o.Add(pids[2], x)
	wantOwner(t, o, pids[3], x, "a process in an inner sandbox")
	o.End(x)
	wantOwner(t, o, pids[1], nil, "a process whose command has ended")
	wantOwner(t, o, pids[3], nil, "a process in its inner sandbox")
}

// TestNobodysPidIsGivenAgain: a process is not nobody's because an earlier one
// with its pid was, or an earlier one with its parent's.
func TestNobodysPidIsGivenAgain(t *testing.T) {
	pids := family(t, 3)
	x := &command{"x"}
	o := leading(pids[0], x)
	for _, pid := range pids {
		o.known[pid] = owned[*command]{nil, ProcessOf(pid).Started - 1}
	}
	wantOwner(t, o, pids[2], x, "a process")
}

// TestAShellSaysWhichCommandRuns: it is asked each time for itself, and once for a
// process below.
func TestAShellSaysWhichCommandRuns(t *testing.T) {
	pids := family(t, 4)
	var current *command
	var asked [][]Process
	o := &Owners[*command]{}
	o.AddShell(pids[0], &command{"shell"}, func(line []Process) *command {
		asked = append(asked, line)
		return current
	})
	wantOwner(t, o, pids[1], nil, "the shell while no command runs")
	current = &command{"x"}
	wantOwner(t, o, pids[3], current, "a process of the command")
	wantOwner(t, o, pids[3], current, "the same process again")
	if len(asked) != 2 || len(asked[1]) != 3 || asked[1][0].PID != pids[3] || asked[1][2].PID != pids[1] {
		t.Errorf("the shell was asked for %v", asked)
	}
	o.End(o.leader[pids[0]].command)
	wantOwner(t, o, pids[1], nil, "the shell of a session that has ended")
}

// TestDeepProcessHidesNoOther: one too deep to follow is nobody's; those above,
// which may be a session's shell, are not for that.
func TestDeepProcessHidesNoOther(t *testing.T) {
	o := leading(-2, &command{"x"})
	var deep line[*command]
	for i := range maxAncestry {
		deep.members = append(deep.members, Process{PID: 1<<30 + i, Started: 1})
	}
	if x := o.ownerLocked(deep); x != nil {
		t.Errorf("it belongs to %p", x)
	}
	for i, want := range map[int]bool{0: true, 1: true, maxAncestry - 1: false} {
		if _, known := o.known[deep.members[i].PID]; known != want {
			t.Errorf("nobody's is the process %d above: %v", i, known)
		}
	}
}
