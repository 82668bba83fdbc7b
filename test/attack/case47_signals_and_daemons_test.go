package attack_test

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// A signal to everybody reaches the sandbox's own processes only.
func TestKillEverybody(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		bystander := exec.Command("sleep", "600")
		bystander.SysProcAttr = s.Command(t.Context()).SysProcAttr // of the same user
		if err := bystander.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := bystander.Process.Kill(); err != nil {
				t.Errorf("the bystander has ended: %v", err)
			}
			_ = bystander.Wait() // killed
		}()
		for _, name := range []string{s.Name, "other"} {
			wantCode(t, s.Agentfense("run", "--detach", "--name", name, "--", "sleep", "600"), 0)
			t.Cleanup(func() { s.Agentfense("stop", name) })
		}
		before, other := inspect(t, s, s.Name), inspect(t, s, "other")
		r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "kill -KILL -1; kill -KILL 1; echo survived")
		if r.Code == 0 && r.Stdout != "survived\n" {
			t.Errorf("the killer: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
		}
		// PID 1 cannot be killed from inside, so the sandbox goes on.
		r = s.Agentfense("exec", s.Name, "--", "sh", "-c", "ps -A -o args= | grep -c '[s]leep 600'")
		if r.Stdout != "0\n" {
			t.Errorf("after the kill: %d, %q, %q", r.Code, r.Stdout, r.Stderr)
		}
		if after := inspect(t, s, s.Name); after.Running == nil || *after.Running != *before.Running {
			t.Errorf("supervisor and PID 1: %+v, want %+v", after.Running, before.Running)
		}
		if after := inspect(t, s, "other"); after.Running == nil || *after.Running != *other.Running {
			t.Errorf("the other sandbox: %+v, want %+v", after.Running, other.Running)
		}
		r = s.Agentfense("exec", "other", "--", "sh", "-c", "ps -A -o args= | grep -c '[s]leep 600'")
		if r.Stdout != "1\n" {
			t.Errorf("the command of the other sandbox: %q, %q", r.Stdout, r.Stderr)
		}
	})
}

// If a client disconnects while its command starts, the start ends. In this test PID 1 does
// not answer, because it is stopped.
func TestLeavingEndsTheStart(t *testing.T) {
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--preset", "full-access", "--name", s.Name, "--", "sleep", "600"), 0)
	t.Cleanup(func() { s.Agentfense("stop", s.Name) })
	commands := func() int {
		var doc struct {
			Running struct {
				Execs int `json:"execs"`
			} `json:"running"`
		}
		if err := json.Unmarshal([]byte(agentfense(t, s, "inspect", s.Name, "--json")), &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Running.Execs
	}
	init := inspect(t, s, s.Name).Running.InitPID
	if err := unix.Kill(init, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Kill(init, unix.SIGCONT) }() // it may have ended
	client := s.Command(t.Context(), "exec", s.Name, "--", "touch", "ran")
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the start", func() bool { return commands() == 2 })
	if err := client.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = client.Wait() // killed
	testenv.Eventually(t, "the start's end", func() bool { return commands() == 1 })
	if err := unix.Kill(init, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.Agentfense("exec", s.Name, "--", "test", "-e", "ran"), 1)
}

// A host process, such as a debugging tool, may have copied the supervisor's mount
// namespace. Then the mount stays in the copy, but the supervisor ends.
func TestACopiedNamespaceDoesNotHoldTheStop(t *testing.T) {
	testenv.Root(t)
	testenv.Command(t, "nsenter", "unshare")
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name, "--", "sleep", "600"), 0)
	doc := inspect(t, s, s.Name)
	holder := exec.Command("nsenter", "--mount=/proc/"+itoa(doc.Running.PID)+"/ns/mnt", "unshare", "--mount", "sh", "-c", "echo copied; exec sleep 600")
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait() // killed
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "copied\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stop := s.Command(t.Context(), "stop", s.Name)
	hung := time.AfterFunc(patience, func() {
		t.Error("the stop hangs")
		_ = unix.Kill(doc.Running.PID, unix.SIGKILL) // it may have ended
	})
	if err := stop.Run(); err != nil {
		t.Error(err)
	}
	hung.Stop()
	testenv.Eventually(t, "the supervisor's end", func() bool { return !hasLive(doc.Running.PID) })
}

// escape starts a process that has left its session, its group and its parent.
const escape = `setsid sh -c 'setsid sh -c "echo escaped; trap : TERM HUP INT; while :; do sleep 4242; done" & exit' &
`

// A process that left its session also ends with the time-out.
func TestSetsidDoesNotEscapeTheTimeout(t *testing.T) {
	for _, flags := range [][]string{nil, {"--pids", "60"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			if flags != nil {
				testenv.Cgroup(t, "pids")
			}
			s := harness.New(t, binary, nil)
			wantCode(t, s.Agentfense(append(append([]string{"run", "--detach", "--name", s.Name}, flags...), "--", "sleep", "600")...), 0)
			r := s.Agentfense("exec", s.Name, "--timeout", "1s", "--", "sh", "-c", escape+"sleep 600")
			if r.Code != 124 || r.Stdout != "escaped\n" || !strings.Contains(r.Stderr, "--timeout") {
				t.Errorf("exit code %d, want 124; stdout %q, stderr %q", r.Code, r.Stdout, r.Stderr)
			}
			r = s.Agentfense("exec", s.Name, "--", "sh", "-c", "ps -A -o args= | grep -E '[s]leep (600|4242)'")
			if r.Stdout != "sleep 600\n" { // the first, detached one
				t.Errorf("left after the time-out: %q, %q", r.Stdout, r.Stderr)
			}
			timedOut := 0
			for _, e := range events(t, s, s.Name, "command_executed") {
				if e["timed_out"] == true {
					timedOut++
				}
			}
			if timedOut != 1 {
				t.Errorf("%d records of a time-out, want 1", timedOut)
			}
		})
	}
}

// A daemon outlives its command, but not its sandbox.
func TestDaemonEndsWithTheSandbox(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		wantCode(t, s.Agentfense("create", s.Name), 0)
		doc := inspect(t, s, s.Name)
		daemon := escape + `while ! ps -A -o args= | grep -q "[s]leep 4242"; do sleep 0.02; done; exec >&- 2>&-`
		wantCode(t, s.Run(daemon), 0)
		nothingLeft(t, s, doc)

		wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name), 0)
		wantCode(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", daemon), 0)
		wantCode(t, s.Agentfense("stop", s.Name), 0)
		nothingLeft(t, s, doc)
	})
}
