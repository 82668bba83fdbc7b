package supervise

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
		pids = append(pids, processOf(pids[len(pids)-1]).parent)
	}
	slices.Reverse(pids)
	if len(pids) != n {
		t.Fatalf("%d processes, want %d", len(pids), n)
	}
	return pids
}

// leading returns an attribution where leader leads x, and another command runs.
func leading(leader int, x *execution) *attribution {
	a := &attribution{}
	a.add(leader, x)
	a.add(-1, &execution{})
	return a
}

func TestNoCommandNoOwner(t *testing.T) {
	wantOwner(t, &attribution{}, 2, nil, "a process")
}

func wantOwner(t *testing.T, a *attribution, pid int, want *execution, who string) {
	t.Helper()
	if got := a.find(pid); got != want {
		t.Errorf("%s belongs to %p, want %p", who, got, want)
	}
}

// TestWhatACommandLeftStaysNobodys: whose a process is that belongs to none is
// not searched for anew, nor beyond it for its children.
func TestWhatACommandLeftStaysNobodys(t *testing.T) {
	pids := family(t, 5)
	x, next := &execution{}, &execution{}
	a := leading(pids[0], x)
	wantOwner(t, a, pids[3], x, "a process while its command runs")
	a.end(pids[0], x)
	wantOwner(t, a, pids[3], nil, "a process whose command has ended")
	a.add(pids[0], next)
	wantOwner(t, a, pids[3], nil, "a process of an earlier command")
	wantOwner(t, a, pids[4], nil, "its child")
	wantOwner(t, a, pids[1], nil, "its ancestor")
}

// TestNobodysPidIsGivenAgain: a process is not nobody's because an earlier one
// with its pid was, or an earlier one with its parent's.
func TestNobodysPidIsGivenAgain(t *testing.T) {
	pids := family(t, 3)
	x := &execution{}
	a := leading(pids[0], x)
	for _, pid := range pids {
		a.known[pid] = owned{nil, processOf(pid).started - 1}
	}
	wantOwner(t, a, pids[2], x, "a process")
}

// TestShellRunsTheCommandsOfItsSession: while none runs it is nobody's, as what
// it has started before.
func TestShellRunsTheCommandsOfItsSession(t *testing.T) {
	pids := family(t, 4)
	sess := &session{pid: pids[1]}
	a := leading(pids[0], &execution{shellOf: sess})
	wantOwner(t, a, pids[3], nil, "a process while no command runs")
	wantOwner(t, a, pids[1], nil, "the shell while no command runs")
	x := &execution{}
	sess.current = x
	sess.loan.Started = processOf(pids[3]).started + 1
	wantOwner(t, a, pids[1], x, "the shell while a command runs")
	wantOwner(t, a, pids[3], nil, "a process older than the command")
}

// TestDeepProcessHidesNoOther: one too deep to follow is nobody's; those above,
// which may be a session's shell, are not for that.
func TestDeepProcessHidesNoOther(t *testing.T) {
	a := leading(-2, &execution{})
	var deep line
	for i := range maxAncestry {
		deep.members = append(deep.members, member{1<<30 + i, process{started: 1}})
	}
	if x := a.ownerLocked(deep); x != nil {
		t.Errorf("it belongs to %p", x)
	}
	for i, want := range map[int]bool{0: true, 1: true, maxAncestry - 1: false} {
		if _, known := a.known[deep.members[i].pid]; known != want {
			t.Errorf("nobody's is the process %d above: %v", i, known)
		}
	}
}
