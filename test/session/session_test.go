// Package session_test drives sessions in real sandboxes as a server does, by
// the supervisor's client.
package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/linetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(leakChecked{m}, &binary, harness.Build)
}

// leakChecked are tests that must leave no goroutine.
type leakChecked struct{ *testing.M }

// Run runs the tests and then looks for goroutines.
func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// running is a sandbox that runs until the test ends.
func running(t *testing.T, files map[string]string, flags ...string) (*harness.Sandbox, *api.Client) {
	t.Helper()
	return start(t, harness.New(t, binary, files), flags...)
}

func start(t *testing.T, s *harness.Sandbox, flags ...string) (*harness.Sandbox, *api.Client) {
	t.Helper()
	args := append([]string{"run", "--detach", "--preset", "full-access", "--name", s.Name}, flags...)
	if r := s.Agentfense(append(args, "--", "sleep", "600")...); r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	return s, s.Client()
}

// list returns the sessions as "open" or why they are closed, by id.
func list(t *testing.T, client *api.Client) map[string]string {
	t.Helper()
	sessions, err := client.Sessions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, s := range sessions {
		states[s.ID] = "open"
		if !s.ClosedAt.IsZero() {
			states[s.ID] = s.Reason
		}
	}
	return states
}

// eachShell runs a test with each shell that a session may have, as we are,
// and with the default one as an ordinary user.
func eachShell(t *testing.T, test func(t *testing.T, s *harness.Sandbox, client *api.Client, shell string)) {
	testenv.Command(t, "dash", "bash", "busybox")
	t.Run("as an ordinary user", func(t *testing.T) {
		s, client := start(t, harness.New(t, binary, nil, harness.Ordinary))
		test(t, s, client, "")
	})
	s, client := running(t, nil)
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	ash := filepath.Join(s.Source, "ash") // its name says which of its programs it is
	if err := os.Symlink(busybox, ash); err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"/bin/sh", "/bin/dash", "/bin/bash", ash} {
		t.Run(filepath.Base(shell), func(t *testing.T) { test(t, s, client, shell) })
	}
}

func TestState(t *testing.T) {
	eachShell(t, func(t *testing.T, s *harness.Sandbox, client *api.Client, shell string) {
		x := s.OpenSession(client, api.SessionOptions{Shell: shell, Dir: "/tmp"})
		x.Prints("pwd; a=1; export b=2; f() { echo \"$1$a$b\"; }; mkdir -p d; cd d", "/tmp\n")
		x.Prints("pwd\nf x", "/tmp/d\nx12\n")
		x.Prints("cat; printf 'no newline\\n \\000\\377'", "no newline\n \x00\xff")
		got := x.Run("echo out; echo err >&2; exit_ 2>/dev/null; (exit 42)")
		if got.Stdout != "out\n" || got.Stderr != "err\n" || got.Exit.Code != 42 || got.Err != nil {
			t.Errorf("%+v", got)
		}
		if got := x.Run("echo 'x"); got.Exit.Code == 0 || got.Exit.SessionClosed || got.Stderr == "" {
			t.Errorf("a syntax error: %+v", got)
		}
		x.Prints("(sleep 0.2; exit 7) & p=$!", "")
		if got := x.Run("wait $p"); got.Exit.Code != 7 || got.Stdout != "" {
			t.Errorf("a job: %+v", got)
		}
		x.Prints("head -c 3000000 /dev/zero | tr '\\0' x", strings.Repeat("x", 3_000_000))
		x.Prints(strings.Repeat("#"+strings.Repeat("x", 999)+"\n", 200)+"echo end", "end\n")
	})
}

// A time-out kills the command with all it started, wherever that has hidden,
// and nothing else: not the session, nor an earlier command's job.
func TestTimeout(t *testing.T) {
	eachShell(t, func(t *testing.T, s *harness.Sandbox, client *api.Client, shell string) {
		x := s.OpenSession(client, api.SessionOptions{Shell: shell})
		x.Prints("a=1; sleep 601 & job=$!", "")
		for _, command := range []string{
			"sleep 4242; echo no",
			"while :; do :; done; echo no",
			"while :; do sleep 4242; done; echo no",
			"f() { sleep 4242; echo no; }; f; echo no",
			"trap '' INT; sleep 4242 & sleep 4242",
			"sh -c 'trap \"\" INT TERM; sleep 4242 & sleep 4242; sleep 4242'; echo no | cat >/dev/null",
			"setsid sh -c 'setsid sleep 4242 & sleep 4242' & sleep 4242; echo no",
			"y=$(sleep 4242); echo no",
			"sleep 4242 | cat; echo no",
			"exec 3>&1; (sleep 4242; echo no) & wait; echo no",
			"trap '' URG; wait $job; echo no", // what busybox ash is first interrupted by
		} {
			got := <-x.Start(t.Context(), command, 150*time.Millisecond)
			if got.Err != nil || got.Exit.Reason != api.ReasonTimeout || got.Exit.SessionClosed || got.Stdout != "" {
				t.Fatalf("%s: %+v", command, got)
			}
			x.Prints("echo $a; ps -A -o args= | grep -c '[s]leep 4242'; kill -0 $job; echo $?", "1\n0\n0\n")
		}
	})
}

// A command that keeps the shell to itself cannot be ended without it.
func TestTimeoutThatClosesTheSession(t *testing.T) {
	s, client := running(t, nil)
	for _, command := range []string{"trap : INT; while :; do :; done", "exec sleep 4242"} {
		x := s.OpenSession(client, api.SessionOptions{})
		got := <-x.Start(t.Context(), command, 100*time.Millisecond)
		if got.Err != nil || got.Exit.Reason != api.ReasonTimeout || !got.Exit.SessionClosed {
			t.Errorf("%s: %+v", command, got)
		}
		testenv.Eventually(t, "the closing is known", func() bool { return list(t, client)[x.ID] == "not_interrupted" })
	}
}

func TestTheShellEnds(t *testing.T) {
	s, client := running(t, nil)
	for _, tt := range []struct {
		command      string
		code, signal int
	}{
		{"exit 3", 3, 0},
		{"(sleep 600; :) & exit 3", 3, 0},
		{"set -e; false; echo no", 1, 0},
		{"kill $$; echo no", 143, 0},
		{"kill -KILL $$", 0, 9},
		{"exec sh -c 'exit 5'", 5, 0},
	} {
		x := s.OpenSession(client, api.SessionOptions{})
		got := x.Run(tt.command)
		if got.Err != nil || !got.Exit.SessionClosed || got.Exit.Code != tt.code || got.Exit.Signal != tt.signal || got.Exit.Reason != "" || got.Stdout != "" {
			t.Errorf("%s: %+v", tt.command, got)
		}
		if again := x.Run("true"); !errdefs.Is(again.Err, errdefs.Precondition) || !strings.Contains(again.Err.Error(), "session is closed") {
			t.Errorf("%s: and then %+v", tt.command, again)
		}
		testenv.Eventually(t, "the closing is known", func() bool { return list(t, client)[x.ID] == "shell_ended" })
		if err := client.CloseSession(t.Context(), x.ID); err != nil {
			t.Error(err)
		}
		if again := x.Run("true"); !errdefs.Is(again.Err, errdefs.NotFound) {
			t.Errorf("%s: forgotten: %+v", tt.command, again)
		}
	}
	if states := list(t, client); len(states) != 0 {
		t.Errorf("left: %v", states)
	}
}

func TestBadRequests(t *testing.T) {
	s, client := running(t, nil)
	x := s.OpenSession(client, api.SessionOptions{})
	ctx := t.Context()
	open := func(o api.SessionOptions) error {
		o.Env = harness.SessionEnv
		_, err := client.OpenSession(ctx, o)
		return err
	}
	for _, id := range []string{"", "sess_", "sess_0123456789abcdeg", "sess_0123456789abcdef0", "../x", "sess_0123456789ABCDEF"} {
		if err := open(api.SessionOptions{ID: id}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("id %q: %v", id, err)
		}
	}
	if err := open(api.SessionOptions{ID: x.ID}); !errdefs.Is(err, errdefs.Exists) {
		t.Errorf("a second one of an id: %v", err)
	}
	notStarted := (*api.CommandError)(nil)
	if err := open(api.SessionOptions{ID: harness.NewSessionID(), Shell: "/bin/not-there"}); !errors.As(err, &notStarted) {
		t.Errorf("no such shell: %v", err)
	}
	if err := open(api.SessionOptions{ID: harness.NewSessionID(), Shell: "/bin/true"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("no shell: %v", err)
	}
	if err := open(api.SessionOptions{ID: harness.NewSessionID(), Dir: "/not/there"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("no such directory: %v", err)
	}
	if err := open(api.SessionOptions{ID: harness.NewSessionID(), IdleTimeout: -1}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a negative idle time-out: %v", err)
	}
	for _, text := range []string{"", "a\x00b"} {
		if got := x.Run(text); !errdefs.Is(got.Err, errdefs.Invalid) {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if err := client.CloseSession(ctx, harness.NewSessionID()); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("closing none: %v", err)
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := client.SessionExec(ctx, x.ID, api.SessionCommand{Text: "true"}, null, null); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a stream that is no pipe: %v", err)
	}
	if diff := cmp.Diff(map[string]string{x.ID: "open"}, list(t, client)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	x.Prints("echo on", "on\n")
}

func TestIdle(t *testing.T) {
	s, client := running(t, nil)
	// Longer than it takes to begin the command, and shorter than the command takes.
	x := s.OpenSession(client, api.SessionOptions{IdleTimeout: 2 * time.Second})
	x.Prints("sleep 2.5; echo on", "on\n")
	testenv.Eventually(t, "the idle session is closed", func() bool { return list(t, client)[x.ID] == "idle" })
	if got := x.Run("true"); !errdefs.Is(got.Err, errdefs.Precondition) {
		t.Errorf("%+v", got)
	}
}

// Sessions of one sandbox are independent; one session's commands take turns.
func TestManyAtOnce(t *testing.T) {
	s, client := running(t, nil)
	var all sync.WaitGroup
	for i := range 20 {
		x := s.OpenSession(client, api.SessionOptions{})
		x.Prints(fmt.Sprintf("me=%d; n=0", i), "")
		for range 3 {
			all.Go(func() {
				for range 5 {
					x.Prints("echo $me; n=$((n+1)); sh -c 'sleep 0.01'", fmt.Sprintf("%d\n", i))
				}
			})
		}
		defer func() { x.Prints("echo $n", "15\n") }()
	}
	all.Wait()
	if states := list(t, client); len(states) != 20 {
		t.Errorf("sessions: %v", states)
	}
}

// A session survives every client, and one that leaves takes its command along.
func TestClientsLeave(t *testing.T) {
	s, client := running(t, nil)
	x := s.OpenSession(client, api.SessionOptions{})
	x.Prints("a=1", "")
	ctx, leave := context.WithCancel(t.Context())
	done := x.Start(ctx, "touch begun; sleep 4242; touch no", 0)
	other := s.OpenSession(client, api.SessionOptions{})
	testenv.Eventually(t, "the command runs", func() bool { return other.Run("test -e begun").Exit.Code == 0 })
	waiting, leaveToo := context.WithCancel(t.Context())
	queued := x.Start(waiting, "touch no", 0)
	leaveToo()
	if got := <-queued; got.Err == nil {
		t.Errorf("who waited: %+v", got)
	}
	leave()
	if got := <-done; !errdefs.Is(got.Err, errdefs.Canceled) {
		t.Errorf("who has left: %+v", got)
	}
	x.Prints("echo $a; test -e no || ps -A -o args= | grep -c '[s]leep 4242'; :", "1\n0\n")
}

// records returns the audit records of a kind.
func records(t *testing.T, s *harness.Sandbox, kind string) []map[string]any {
	t.Helper()
	r := s.Agentfense("audit", s.Name, "--json")
	if r.Code != 0 {
		t.Fatalf("%+v", r)
	}
	var found []map[string]any
	for line := range strings.Lines(r.Stdout) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if record["event"] == kind {
			found = append(found, record)
		}
	}
	return found
}

func TestAudit(t *testing.T) {
	s, client := running(t, map[string]string{"secret": "x"}, "--hide", "secret")
	x := s.OpenSession(client, api.SessionOptions{})
	x.Prints("(until test -e go; do sleep 0.01; done; touch late) &", "")
	x.Prints("touch one; sh -c 'touch two'; touch go; while ! test -e late; do sleep 0.01; done", "")
	if got := x.Run("cat secret"); got.Exit.Code == 0 {
		t.Errorf("%+v", got)
	}
	<-x.Start(t.Context(), "touch three; sleep 4242", 2*time.Second) // so that it touches first
	if err := client.CloseSession(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	s.Agentfense("stop", s.Name)

	created, closed := records(t, s, "session_created"), records(t, s, "session_closed")
	if len(created) != 1 || len(closed) != 1 || created[0]["session"] != x.ID || closed[0]["session"] != x.ID ||
		created[0]["shell"] != "/bin/sh" || closed[0]["reason"] != "closed" || closed[0]["duration_ms"].(float64) < 200 {
		t.Errorf("created %v, closed %v", created, closed)
	}
	exec := map[string]any{}
	for _, r := range records(t, s, "command_executed") {
		if r["session"] != x.ID {
			continue
		}
		argv := r["argv"].([]any)
		text := argv[0].(string)
		exec[strings.Fields(text)[len(strings.Fields(text))-1]] = r["exec"]
		if (text == "touch three; sleep 4242") != r["timed_out"].(bool) {
			t.Errorf("timed out: %v", r)
		}
	}
	if len(exec) != 5 { // the shell's own record is one
		t.Errorf("commands: %v", exec)
	}
	changed := map[string]any{}
	for _, r := range records(t, s, "file_changed") {
		for _, path := range r["created"].([]any) {
			changed[path.(string)] = r["exec"]
		}
	}
	want := map[string]any{"/one": exec["done"], "/two": exec["done"], "/go": exec["done"], "/late": nil, "/three": exec["4242"]}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	denied := records(t, s, "permission_denied")
	if len(denied) == 0 {
		t.Error("no denial")
	}
	for _, r := range denied {
		if r["path"] == "/secret" && r["exec"] != exec["secret"] {
			t.Errorf("denial: %v, want exec %v", r, exec["secret"])
		}
	}
}

// A supervisor stays while a session is open, without any other command.
func TestSessionsHoldTheSandbox(t *testing.T) {
	s := harness.New(t, binary, nil)
	cmd := s.Command(t.Context(), "run", "--preset", "full-access", "--name", s.Name, "--", "sh", "-c", "echo up; cat")
	d := linetest.Start(t, cmd)
	if line := d.Hear(); line != "up" {
		t.Fatalf("heard %q", line)
	}
	client := s.Client()
	x := s.OpenSession(client, api.SessionOptions{})
	if _, stderr, err := d.End(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	x.Prints("echo on", "on\n")
	if err := client.CloseSession(t.Context(), x.ID); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the supervisor has ended", func() bool {
		_, err := client.Status(t.Context())
		return err != nil
	})
}
