package cgroup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/linetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// realHost returns the present host, if it can enforce l.
func realHost(t *testing.T, l GroupLimits) Host {
	t.Helper()
	testenv.Cgroup(t, l.controllers()...)
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(l); err != nil {
		t.Fatal(err)
	}
	if !h.Usable() {
		t.Fatal(h.unusable())
	}
	return h
}

func realGroup(t *testing.T, h Host, l GroupLimits) *Group {
	t.Helper()
	g, err := h.Create(fmt.Sprintf("test_%d", os.Getpid()), l)
	if err != nil {
		t.Fatal(err)
	}
	places := slices.Clone(g.places)
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
		for _, p := range places {
			if exists(p.dir, "") {
				t.Errorf("%s is left", p.dir)
			}
		}
	})
	return g
}

// start runs a shell script in g. The shell waits until it is inside.
func start(t *testing.T, g *Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read go; "+script)
	return startIn(t, g.Add, cmd)
}

func startIn(t *testing.T, add func(pid int) error, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func usage(t *testing.T, g *Group) Usage {
	t.Helper()
	u, err := g.Usage()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAMemoryBombIsKilled(t *testing.T) {
	l := GroupLimits{MemoryBytes: 32 << 20}
	g := realGroup(t, realHost(t, l), l)
	calm, err := g.Sub("calm")
	if err != nil {
		t.Fatal(err)
	}
	bomb, err := g.Sub("bomb")
	if err != nil {
		t.Fatal(err)
	}
	// tail keeps the last line of the output.
	if err := start(t, bomb, "exec head -c 256M /dev/zero | tail").Wait(); err == nil {
		t.Error("256 MiB fitted into a limit of 32 MiB")
	}
	if u := usage(t, bomb); u.OOMKills == 0 || u.MemoryPeakBytes < l.MemoryBytes/2 || u.MemoryPeakBytes > l.MemoryBytes {
		t.Errorf("usage = %+v, want a kill and a peak near %d", u, l.MemoryBytes)
	}
	if u := usage(t, calm); u.OOMKills != 0 {
		t.Errorf("usage of the other exec = %+v, want no kill", u)
	}
	if err := bomb.Delete(); err != nil {
		t.Fatal(err)
	}
	if u := usage(t, g); u.OOMKills == 0 {
		t.Errorf("usage of the sandbox = %+v, want the kill remembered", u)
	}
}

func TestAForkBombHitsTheLimit(t *testing.T) {
	l := GroupLimits{PIDs: 20}
	g := realGroup(t, realHost(t, l), l)
	s, err := g.Sub("bomb")
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, s, "while :; do sleep 100 & done")
	_ = cmd.Wait() // the shell fails when it cannot fork
	if u := usage(t, s); u.PIDsMaxHits == 0 {
		t.Errorf("usage = %+v, want refused forks", u)
	}
	if u := usage(t, g); u.PIDsMaxHits == 0 {
		t.Errorf("usage of the sandbox = %+v, want refused forks", u)
	}
	pids, err := allProcesses(s.places[0].dir)
	if err != nil || len(pids) == 0 || len(pids) > 20 {
		t.Errorf("%d processes, %v, want up to 20", len(pids), err)
	}
}

func TestCPUTimeIsReadAndLimited(t *testing.T) {
	l := GroupLimits{CPUs: 0.1, CPUShares: 512}
	g := realGroup(t, realHost(t, l), l)
	s, err := g.Sub("spin")
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, s, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	u := usage(t, s)
	if want := cmd.ProcessState.UserTime() / 2; u.CPU < want || u.User == 0 {
		t.Errorf("usage = %+v, want more than %v", u, want)
	}
	p := g.placeOf(CPU)
	if field(p.dir, "cpu.stat", "nr_throttled") == 0 {
		t.Error("the limit was never felt")
	}
	if shares, weight := number(p.dir, "cpu.shares"), number(p.dir, "cpu.weight"); shares != 512 && weight != 59 {
		t.Errorf("shares %d, weight %d, want 512 or 59", shares, weight)
	}
}

func TestKillEndsAll(t *testing.T) {
	tests := []struct {
		name    string
		version int // of the hierarchies that are used; 0: all
		without string
	}{
		{"by the best way there is", 0, ""},
		{"on v1 with the freezer", 1, ""},
		{"on v1 without the freezer", 1, "freezer"},
		{"on v2", 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.version != 0 {
				testenv.CgroupVersion(t, tt.version)
			}
			h := realHost(t, GroupLimits{})
			h.hierarchies = slices.DeleteFunc(slices.Clone(h.hierarchies), func(h hierarchy) bool {
				return tt.version != 0 && h.version != tt.version || slices.Contains(h.controllers, tt.without)
			})
			g := realGroup(t, h, GroupLimits{})
			s, err := g.Sub("exec-1")
			if err != nil {
				t.Fatal(err)
			}
			bystander := start(t, g, "sleep 100")
			// Daemons that left the session, and a parent that replaces the dead.
			cmd := start(t, s, "for i in 1 2 3; do setsid sh -c 'sleep 100 & sleep 100' & done; while :; do sleep 0.01; done")
			testenv.Eventually(t, "the processes are there", func() bool {
				pids, err := allProcesses(s.places[0].dir)
				return err == nil && len(pids) > 6
			})
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			if empty, err := s.Empty(); !empty || err != nil {
				t.Errorf("Empty = %v, %v, want true", empty, err)
			}
			_ = cmd.Wait()
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != unix.SIGKILL {
				t.Errorf("the command ended with %v, want SIGKILL", cmd.ProcessState)
			}
			if err := s.Delete(); err != nil {
				t.Error(err)
			}
			if err := unix.Kill(bystander.Process.Pid, 0); err != nil {
				t.Errorf("the kill of one exec took another's process: %v", err)
			}
		})
	}
}

func TestADeadOwnersProcessesDieWithItsName(t *testing.T) {
	h := realHost(t, GroupLimits{})
	name := fmt.Sprintf("test_%d", os.Getpid())
	g, err := h.Create(name, GroupLimits{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, g, "exec sleep 100")
	for _, fd := range g.locks {
		unix.Close(fd)
	}
	if err := h.Sweep(func(string) bool { return false }); err != nil || !exists(g.places[0].dir, "") {
		t.Errorf("Sweep of nothing = %v, and the group is there: %v", err, exists(g.places[0].dir, ""))
	}
	realGroup(t, h, GroupLimits{})
	if err := cmd.Wait(); err == nil {
		t.Error("the dead owner's process lives on")
	}
}

func TestSweepEndsADeadOwnersProcesses(t *testing.T) {
	h := realHost(t, GroupLimits{})
	name := fmt.Sprintf("test_%d", os.Getpid())
	g, err := h.Create(name, GroupLimits{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, g, "exec sleep 100")
	mine := func(n string) bool { return n == name }
	if err := h.Sweep(mine); err != nil || cmd.Process.Signal(syscall.Signal(0)) != nil {
		t.Errorf("Sweep while the owner lives = %v", err)
	}
	for _, fd := range g.locks {
		unix.Close(fd)
	}
	if err := h.Sweep(mine); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the dead owner's process lives on")
	}
	for _, p := range g.places {
		if exists(p.dir, "") {
			t.Errorf("%s is left", p.dir)
		}
	}
}

func TestAnEndedProcessCannotBeAdded(t *testing.T) {
	g := realGroup(t, realHost(t, GroupLimits{}), GroupLimits{})
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("Add of an ended process = %v, want NotFound", err)
	}
}

// TestV2HandsControllersDown uses hugetlb, the controller that a hybrid host leaves to v2.
func TestV2HandsControllersDown(t *testing.T) {
	testenv.CgroupVersion(t, 2)
	h := realHost(t, GroupLimits{})
	i := slices.IndexFunc(h.hierarchies, func(h hierarchy) bool {
		return h.version == 2 && h.base == h.mount && slices.Contains(words(h.mount, "cgroup.controllers"), "hugetlb")
	})
	if i < 0 {
		t.Skip("needs a free v2 controller")
	}
	root := h.hierarchies[i].mount
	had := slices.Contains(words(root, "cgroup.subtree_control"), "hugetlb")
	base := filepath.Join(root, fmt.Sprintf("agentfense-test-%d", os.Getpid()))
	if err := h.kernel.mkdir(base); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.kernel.remove(base); err != nil {
			t.Error(err)
		}
		if !had {
			_ = write(root, "cgroup.subtree_control", "-hugetlb")
		}
	})
	if err := h.kernel.delegate(root, selfName, []string{"hugetlb"}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "100")
	startIn(t, func(pid int) error { return write(base, "cgroup.procs", fmt.Sprint(pid)) }, cmd)
	if err := h.kernel.delegate(base, selfName, []string{"hugetlb"}); err != nil {
		t.Fatalf("handing down with a process inside: %v", err)
	}
	if got := words(base, "cgroup.subtree_control"); !slices.Contains(got, "hugetlb") {
		t.Errorf("subtree_control = %v, want hugetlb", got)
	}
	if pids, err := processes(filepath.Join(base, selfName)); err != nil || !slices.Contains(pids, cmd.Process.Pid) {
		t.Errorf("the leaf holds %v, %v, want %d", pids, err, cmd.Process.Pid)
	}
	if err := h.kernel.killAll(base); err != nil {
		t.Error(err)
	}
}

// TestANamespaceHasItsRootWhereItsMakerEntered checks from inside: a namespace shows a
// group outside of it as a path that begins with "/..".
func TestANamespaceHasItsRootWhereItsMakerEntered(t *testing.T) {
	g := realGroup(t, realHost(t, GroupLimits{}), GroupLimits{})
	const show = "cut -d: -f3 /proc/self/cgroup | sort -u; echo end"
	cmd := exec.Command("sh", "-c", `read go; exec unshare -C sh -c "`+show+`; read go; `+show+`"`)
	d := linetest.Start(t, cmd)
	answer := func() (groups []string) {
		for line := d.Ask("go"); line != "end"; line = d.Hear() {
			groups = append(groups, line)
		}
		return groups
	}
	if err := g.Enter(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := answer(); !slices.Equal(got, []string{"/"}) {
		t.Errorf("where it entered it sees itself in %q, want /", got)
	}
	if err := g.Settle(); err != nil {
		t.Fatal(err)
	}
	// Hierarchies that are not used still show their root.
	if got := slices.DeleteFunc(answer(), func(path string) bool { return path == "/" }); !slices.Equal(got, []string{"/init"}) {
		t.Errorf("once settled it sees itself in %q, want /init", got)
	}
}
