package attack_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A supervisor that does not answer, because it is stopped or swapped out, blocks its own
// sandbox and nothing else. stop finally kills it, which also ends the processes that wait
// for its reply: no unkillable task remains.
func TestSupervisorHangs(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "a\n"})
	other := harness.New(t, binary, nil)
	other.Source, other.Home, other.Name = s.Source, s.Home, "other"
	wantCode(t, s.Agentfense("run", "--detach", "--name", "other", "--", "sleep", "600"), 0)
	t.Cleanup(func() { s.Agentfense("stop", "other") })

	d := s.Talk(askForEver, nil, "--preset", "full-access")
	if got := d.Hear(); got != "asking" {
		t.Fatal(got)
	}
	doc := inspect(t, s, s.Name)
	if err := unix.Kill(doc.Running.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// Requests wait now. Whatever only looks, and the other sandbox, goes on.
	for range 3 {
		wantCode(t, s.Agentfense("exec", "other", "--", "cat", "a"), 0)
	}
	for _, args := range [][]string{{"ls"}, {"diff", s.Name, "--stat"}, {"audit", s.Name}} {
		wantCode(t, s.Agentfense(args...), 0)
	}
	if r := s.Agentfense("rm", s.Name); r.Code == 0 {
		t.Error("a sandbox whose supervisor lives was removed")
	}
	killed := s.Agentfense("stop", "--timeout", "300ms", s.Name)
	if killed.Code != 0 || !strings.Contains(killed.Stderr, "did not end within 300ms and was killed") {
		t.Errorf("stop: exit code %d\n%s", killed.Code, killed.Stderr)
	}
	if r := d.End(); r.Code != 125 {
		t.Errorf("exit code %d, want 125\n%s", r.Code, r.Stderr)
	}
	nothingLeft(t, s, doc)
	prints(t, s, "cat a kept", "a\nkept\n")
}

// askForEver asks for names that nobody has asked for before, by several
// threads at once, so that each request goes to the supervisor.
var askForEver = program("ask for ever", func(in *inside, _ []string) {
	fd, err := unix.Open("kept", unix.O_CREAT|unix.O_WRONLY, 0o644)
	in.works("create", err)
	_, err = unix.Write(fd, []byte("kept\n"))
	in.works("write", err)
	for thread := range 8 {
		go func() {
			for n := 0; ; n++ {
				unix.Access(fmt.Sprintf("absent %d %d", thread, n), unix.F_OK)
			}
		}()
	}
	fmt.Println("asking")
	select {}
})
