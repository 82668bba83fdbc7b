package attack_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A lock of another sandbox takes descriptors that are open, cannot be got round by names or asks,
// shows nothing that is hidden, and ends when its holder is killed.
func TestALockHoldsUntilItsHolderIsKilled(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"dir/f": "secret", "hidden/f": "secret", "other/d/f": "x"})
	untouched := s.Untouched()
	agentfense(t, s, "run", "--detach", "--preset", "full-access", "--name", "holder")
	d := s.Talk(holdOpen, nil, "--preset", "full-access", "--hide", "hidden/", "--ask-hook", "echo allow sandbox")
	ask := func(line, want string) {
		t.Helper()
		if got := d.Ask(line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	ask("write", "success")
	agentfense(t, s, "lock", "holder", "dir", "hidden", "other/d/f", "absent/deep")
	ask("read", "changed")
	ask("map", "change")
	for _, verb := range []string{"write", "truncate", "open again", "make", "make here"} {
		ask(verb, "EACCES")
	}
	r := s.Agentfense("exec", s.Name, "--", "sh", "-c", `
		for c in 'echo x >dir/f' 'rm dir/f' 'touch dir/f' 'chmod 777 dir/f' 'truncate -s 0 dir/f' 'touch dir/new' 'mkdir dir/d' \
			'mv dir moved' 'mv other moved' 'mv -T other/d moved' 'mv dir/f out' 'ln dir/f out' 'ln -s / dir/link' 'cp other/d/f dir/' \
			'rm -r other' 'mkdir -p absent/deep' 'mkdir absent && touch absent/deep' 'cat hidden/f' 'ls hidden' 'mkdir src && mkdir src/deep && mv -T src absent'; do
			sh -c "$c" 2>/dev/null && echo "done: $c"
		done
		cat dir/f; rm -r moved; ls; echo ---; cat /run/agentfense/denied.jsonl`)
	wantCode(t, r, 0)
	seen, notes, _ := strings.Cut(r.Stdout, "---\n")
	if want := "changedabsent\ndir\nother\nsrc\n"; seen != want {
		t.Errorf("%s, want %q", seen, want)
	}
	if strings.Contains(notes, "hidden") || !strings.Contains(notes, `"reason":"a lock of the sandbox holder"`) {
		t.Errorf("the notes: %s", notes)
	}
	if err := unix.Kill(inspect(t, s, "holder").Running.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); d.Ask("write") != "success"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the lock of a killed holder stays")
		}
	}
	ask("make", "success")
	for end := time.Now().Add(patience); !strings.Contains(s.Agentfense("audit", s.Name).Stdout, "sandbox holder was killed"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the audit log does not have the end of the locks")
		}
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
	if left := agentfense(t, s, "lock", "ls"); left != "" {
		t.Errorf("left: %s", left)
	}
	untouched()
}

// A lock of a directory takes nothing from others that its holder may not write itself, and follows
// what the holder may write.
func TestALockTakesOnlyWhatItsHolderMayWrite(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"src/f": "x", "docs/f": "x", "hidden/f": "x"})
	untouched := s.Untouched()
	agentfense(t, s, "run", "--detach", "--preset", "full-access", "--name", "holder", "--read", "docs/", "--hide", "hidden/")
	agentfense(t, s, "run", "--detach", "--preset", "full-access", "--name", "other")
	defer agentfense(t, s, "stop", "holder")
	defer agentfense(t, s, "stop", "other")
	writes := func(path string) bool {
		return s.Agentfense("exec", "other", "--", "sh", "-c", "echo y >"+path).Code == 0
	}
	agentfense(t, s, "lock", "holder", ".")
	for path, want := range map[string]bool{
		"src/f": false, "src/new": false, "new": false, ".own": false,
		"docs/f": true, "docs/new": true, "hidden/f": true, "hidden/new": true,
	} {
		if got := writes(path); got != want {
			t.Errorf("%s: written: %t, want %t", path, got, want)
		}
	}
	for _, c := range []string{"rm src/f", "mv docs/f src/", "mv src docs/", "ln docs/f src/l", "mkdir new"} {
		if r := s.Agentfense("exec", "other", "--", "sh", "-c", c); r.Code == 0 {
			t.Errorf("done: %s", c)
		}
	}
	follows := func(what string, want bool) {
		t.Helper()
		for end := time.Now().Add(patience); writes("docs/f") != want; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the lock does not follow", what)
			}
		}
	}
	agentfense(t, s, "policy", "grant", "holder", "docs/", "write")
	follows("a grant", false)
	agentfense(t, s, "policy", "revoke", "holder", "docs/")
	follows("its end", true)
	untouched()
}
