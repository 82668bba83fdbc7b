package isolatetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

var killCases = []testCase{
	{name: "a kill reaches descendants that hide", run: testKillHidden},
	{name: "a kill reaches descendants that never stay", run: testKillFleeing},
	{name: "a command cannot save itself by attacking its leader", run: testAttackLeader},
	{name: "PID 1 shrugs off signals", run: testSignalInit},
	{name: "the sandbox ends as a whole", run: testKillSandbox},
	{name: "the sandbox ends when the connection does", run: testCloseConnection},
	{name: "the sandbox ends when its supervisor is killed", run: testKillSupervisor},
}

// sleepers counts the processes named sleep.
const sleepers = `cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$' || true`

func testKillHidden(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `
		setsid sh -c 'sleep 1000 & setsid sleep 1000 & sleep 1000' &
		(setsid setsid sleep 1000 &) &
		while [ $(` + sleepers + `) -lt 4 ]; do :; done; echo ready; trap '' TERM INT HUP; sleep 1000`}})
	other := b.begin(guest.Command{Argv: []string{"cat"}})
	r.line()
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	r.gone()
	if exit := r.wait(); exit.Signal != int(unix.SIGKILL) {
		t.Errorf("got %+v, want it killed", exit)
	}
	if got := b.must(sleepers); got != "0" {
		t.Errorf("%s descendants live on", got)
	}
	other.stdin.Close()
	if exit := other.wait(); exit.Code != 0 || exit.Signal != 0 {
		t.Errorf("another exec was harmed: %+v", exit)
	}
}

// testKillFleeing runs a process that starts its successor in a new session and exits. Each
// writes a line to a trace.
func testKillFleeing(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", `
		printf '#!/bin/sh\nsetsid "$0" </dev/null >/dev/null 2>&1 & echo >> /tmp/trace\n' > /tmp/flee; chmod +x /tmp/flee; /tmp/flee
		while [ $(wc -l < /tmp/trace) -lt 5 ]; do :; done; echo ready; sleep 1000`}})
	r.line()
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	r.gone()
	before := b.must("wc -l < /tmp/trace")
	for range 20 {
		b.must("true")
	}
	if after := b.must("wc -l < /tmp/trace"); after != before {
		t.Errorf("it fled %s times, then %s", before, after)
	}
}

func testAttackLeader(t *testing.T, factory Factory) {
	b := simple(t, factory)
	for _, attack := range []string{"kill -STOP $PPID", "kill -KILL $PPID", "kill -TERM -1"} {
		r := b.begin(guest.Command{Argv: []string{"sh", "-c", `trap '' TERM; read x; (setsid sleep 1000 &); ` + attack + `; echo done; exec sleep 1000`}})
		r.stdin.WriteString("go\n")
		if attack != "kill -KILL $PPID" {
			r.line()
		}
		if err := r.Kill(); err != nil {
			t.Fatal(err)
		}
		r.gone()
		if got := b.must(sleepers); got != "0" {
			t.Errorf("%s: %s descendants live on", attack, got)
		}
	}
}

func testSignalInit(t *testing.T, factory Factory) {
	b := simple(t, factory)
	b.must(`for s in HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STOP TSTP CHLD; do kill -$s 1; done`)
	b.must("true")
}

func testKillSandbox(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", "setsid sleep 1000 & echo ready; wait"}})
	r.line()
	if err := b.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.proc.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", r.HostPID())); err == nil {
		t.Error("the leader outlived the sandbox")
	}
	if _, err := r.Wait(context.Background()); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("wait: got %v", err)
	}
	r.gone()
	<-b.conn.Done()
	if _, err := b.tryBegin(guest.Command{Argv: []string{"true"}}); !errdefs.Is(err, errdefs.Unavailable) {
		t.Errorf("exec: got %v", err)
	}
	if err := b.proc.Kill(); err != nil {
		t.Errorf("second kill: %v", err)
	}
}

func testCloseConnection(t *testing.T, factory Factory) {
	b := simple(t, factory)
	b.begin(guest.Command{Argv: []string{"sleep", "1000"}})
	b.conn.Close()
	if err := b.proc.Wait(); err != nil {
		t.Error(err)
	}
}

// supervise starts a sandbox with a command, prints their host pids, and waits to be
// killed.
func supervise(t *testing.T, factory Factory) {
	b := simple(t, factory)
	r := b.begin(guest.Command{Argv: []string{"sh", "-c", "setsid sleep 1000 & echo ready; wait"}})
	r.line()
	fmt.Printf("pids %d %d\n", b.proc.PID(), r.HostPID())
	select {}
}

func testKillSupervisor(t *testing.T, _ Factory) {
	name, _, _ := strings.Cut(t.Name(), "/")
	tmp := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), roleEnv+"="+supervisorRole, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// It runs in a new mount namespace, because it cannot remove its mounts.
	if images == nil {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWNS
	} else {
		t.Cleanup(func() { unmountBelow(t, tmp) })
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids [2]int
	if _, err := fmt.Fscanf(out, "pids %d %d\n", &pids[0], &pids[1]); err != nil {
		t.Fatal(err)
	}
	var processes []*os.File
	for _, pid := range pids {
		process, err := pidfd.Open(pid)
		if err != nil {
			t.Fatal(err)
		}
		defer process.Close()
		processes = append(processes, process)
	}
	cmd.Process.Kill()
	cmd.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i, process := range processes {
		if err := pidfd.Wait(ctx, process); err != nil {
			t.Errorf("process %d lives on: %v", pids[i], err)
		}
	}
}

// unmountBelow unmounts what is mounted below dir.
func unmountBelow(t *testing.T, dir string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			if err := unix.Unmount(fields[4], unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", fields[4], err)
			}
		}
	}
}
