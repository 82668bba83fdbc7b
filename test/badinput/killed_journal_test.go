package badinput_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// changeAll has a step of each kind.
const changeAll = `echo new > f; rm gone; chmod 755 mode; rm -r dir; echo file > dir; rm becomes; mkdir becomes; echo in > becomes/in
mkdir -p made/in; echo made > made/in/f; ln -s f link; rm old; ln -s new old; ln f hard; mkfifo pipe; echo more >> twice; chmod 700 closed; echo more >> named`

var beforeAll = map[string]string{
	"f": "old\n", "gone": "gone\n", "mode": "same\n", "dir/a": "1\n", "dir/b/c": "2\n", "becomes": "file\n", "old": "file\n",
	"twice": "one\n", "closed/f": "1\n", "named": "twice\n",
}

// stateOf describes each entry of the source, as far as undo restores it.
func stateOf(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", `cd "$1" && find . -mindepth 1 -printf '%P %M %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 cat`, "sh", s.Source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// giveName gives a file of the source another name: its previous version is copied then.
func giveName(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	name := s.Source + "/named too"
	_ = os.Remove(name) // at first there is none
	if err := os.Link(s.Source+"/named", name); err != nil {
		t.Fatal(err)
	}
}

// appliesNothing is a command that finds what a killed apply or undo has left.
func appliesNothing(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	r := s.Agentfense("apply", s.Name, "there/is/no/such/change")
	if r.Code == 0 {
		t.Fatal("a change was found that is none")
	}
	return r.Stderr
}

// A process that is killed at any step of an apply, of an undo or of a redo leaves all or nothing,
// once the next command has run, and says so. An apply can then be done, and undone, as always.
func TestAKilledTransactionIsAllOrNothing(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) {
			s := harness.New(t, binary, beforeAll, options...)
			giveName(t, s)
			before := stateOf(t, s)
			wantCode(t, s.Run(changeAll, "--preset", "full-access"), 0)
			wantCode(t, s.Agentfense("apply", s.Name), 0)
			after := stateOf(t, s)
			wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
			if now := stateOf(t, s); now != before {
				t.Fatalf("after undo:\n%s\nwant:\n%s", now, before)
			}
			points := []string{
				"journal: made", "journal: copied", "journal: ready", "sync: intended", "journal: placing", "sync: staged", "sync: swapped", "journal: taken",
				"sync: moved away", "sync: one placed", "journal: rest kept", "journal: committed", "journal: images dropped", "sync: settled", "sync: told",
				"sync: forgotten", "sync: dropped",
			}
			if options != nil {
				points = []string{"journal: taken", "sync: settled"} // what depends on the user
			}
			for _, point := range points {
				if point == "journal: copied" {
					giveName(t, s) // undo makes files with one name
				}
				s.KilledAt(point, "apply", s.Name)
				said := appliesNothing(t, s)
				now := stateOf(t, s)
				committed := slices.Contains([]string{"journal: committed", "journal: images dropped", "sync: settled", "sync: told", "sync: forgotten", "sync: dropped"}, point)
				want := before
				if committed {
					want = after
				}
				if now != want {
					t.Fatalf("killed at %q, committed %v:\n%s\nwant:\n%s", point, committed, now, want)
				}
				if delta := deltaOf(t, s, "--name-status"); (delta == "") != committed {
					t.Errorf("killed at %q, committed %v, the sandbox has the changes\n%s", point, committed, delta)
				}
				if told := strings.Contains(said, "was killed before its end: the source is restored"); told == (committed || point == "journal: made" || point == "journal: copied") {
					t.Errorf("killed at %q, said %q", point, said)
				}
				wantCode(t, s.Agentfense("apply", s.Name), 0)
				if now := stateOf(t, s); now != after {
					t.Fatalf("applied after the kill at %q:\n%s\nwant:\n%s", point, now, after)
				}
				wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
				if now := stateOf(t, s); now != before {
					t.Fatalf("undone after the kill at %q:\n%s\nwant:\n%s", point, now, before)
				}
			}
			if options == nil {
				killedUndo(t, s, before, after)
			}
		})
	}
}

// deltaOf returns the changes that the sandbox has. A list of names does not count as shown.
func deltaOf(t *testing.T, s *harness.Sandbox, flags ...string) string {
	t.Helper()
	r := s.Agentfense(append([]string{"diff", s.Name}, flags...)...)
	if r.Code != 0 {
		t.Fatalf("diff: exit code %d\n%s", r.Code, r.Stderr)
	}
	return r.Stdout
}

// killedUndo is the test of undo and redo, from the state before. An undo gives the delta all
// changes back, or none. A redo takes them out, if it is committed.
func killedUndo(t *testing.T, s *harness.Sandbox, before, after string) {
	t.Helper()
	all := deltaOf(t, s)
	for _, point := range []string{
		"history: one moved", "sync: swapped", "sync: moved away", "journal: reversed", "journal: rest kept",
		"journal: committed", "journal: images dropped", "settle: told", "settle: dropped",
		"undo: told", "undo: frozen", "undo: one removed", "undo: one made", "next head: durable", "next head: put",
	} {
		inDelta := strings.HasPrefix(point, "undo: ") || strings.HasPrefix(point, "next head: ")
		ofRedo := strings.HasPrefix(point, "settle: ") || point == "journal: rest kept"
		committed := inDelta || strings.HasPrefix(point, "settle: ") || point == "journal: committed" || point == "journal: images dropped"
		for _, verb := range []string{"redo", "undo"} {
			from, to, delta := before, after, ""
			if verb == "undo" {
				from, to, delta = after, before, all
			}
			killed := verb == "redo" && !inDelta || verb == "undo" && !ofRedo
			if killed {
				s.KilledAt(point, verb, s.Name, "--yes")
				appliesNothing(t, s)
				if committed && verb == "undo" && point != "next head: put" {
					delta = "" // the changes are in the history alone
				}
			}
			if now := stateOf(t, s); killed && !committed && now != from {
				t.Fatalf("%s killed at %q:\n%s\nfrom:\n%s", verb, point, now, from)
			}
			if !killed || !committed {
				wantCode(t, s.Agentfense(verb, s.Name, "--yes"), 0)
			}
			if now := stateOf(t, s); now != to {
				t.Fatalf("%s after the kill at %q:\n%s\nwant:\n%s", verb, point, now, to)
			}
			if verb == "redo" { // what was shown and is taken out is not missing
				wantCode(t, s.Agentfense("apply", s.Name, "--dry-run"), 0)
			}
			if now := deltaOf(t, s); now != delta {
				t.Fatalf("%s killed at %q: the sandbox has the changes\n%s\nwant:\n%s", verb, point, now, delta)
			}
		}
		if deltaOf(t, s) == "" { // give them back
			wantCode(t, s.Agentfense("redo", s.Name, "--yes"), 0)
			wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
			if now := deltaOf(t, s); now != all {
				t.Fatalf("undone: the sandbox has the changes\n%s\nwant:\n%s", now, all)
			}
		}
	}
}

// After the commit of an apply or a redo that is killed, the next command completes it in the
// sandbox: what a person does meanwhile is in conflict with nothing, and the log has one record.
func TestACommittedTransactionIsCompletedInTheSandbox(t *testing.T) {
	for _, point := range []string{"journal: committed", "sync: told", "settle: told", "settle: dropped"} {
		for _, verb := range []string{"apply", "redo"} {
			if ofRedo := strings.HasPrefix(point, "settle: "); verb == "apply" && ofRedo || verb == "redo" && point == "sync: told" {
				continue
			}
			t.Run(verb+" killed at "+point, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{"f": "old\n", "gone": "old\n", "dir/gone": "old\n"})
				wantCode(t, s.Run("echo new > f; rm -r gone dir; echo made > made", "--preset", "full-access"), 0)
				want, yes := 2, []string(nil) // with the last apply
				if verb == "redo" {
					yes = []string{"--yes"}
					wantCode(t, s.Agentfense("apply", s.Name), 0)
					wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
					want += 2
				}
				s.KilledAt(point, append([]string{verb, s.Name}, yes...)...)
				for _, name := range []string{"f", "gone", "made"} { // and dir/gone stays as it is
					s.Write(name, "a person's\n")
				}
				r := s.Run("cat f gone made; rm gone; ls -a dir 2>/dev/null || true")
				if want := strings.Repeat("a person's\n", 3); r.Code != 0 || r.Stdout != want {
					t.Errorf("exit code %d, the sandbox shows %q, want %q\n%s", r.Code, r.Stdout, want, r.Stderr)
				}
				if r := s.Agentfense("apply", s.Name); r.Code != 0 || strings.TrimSpace(r.Stdout) != "applied\tD\tgone" {
					t.Errorf("exit code %d, applied %q\n%s", r.Code, r.Stdout, r.Stderr)
				}
				log := s.Agentfense("audit", s.Name, "--json").Stdout
				if got := strings.Count(log, `"event":"applied"`) + strings.Count(log, `"event":"undone"`); got != want {
					t.Errorf("the log has %d records, want %d:\n%s", got, want, log)
				}
			})
		}
	}
}

// A command that finds what a killed apply has left, and is killed itself, leaves it to the next.
func TestAKilledRecoveryGoesOn(t *testing.T) {
	s := harness.New(t, binary, beforeAll)
	before := stateOf(t, s)
	wantCode(t, s.Run(changeAll, "--preset", "full-access"), 0)
	for _, left := range []string{"sync: moved away", "sync: swapped"} { // after all files, and at one
		s.KilledAt(left, "apply", s.Name)
		points := []string{"history: one moved", "journal: restored", "journal: rolled back"}
		if left == "sync: moved away" {
			points = append([]string{"sync: moved away", "sync: swapped"}, points...)
		}
		for _, point := range points {
			s.KilledAt(point, "apply", s.Name, "there/is/no/such/change")
		}
		appliesNothing(t, s)
		if now := stateOf(t, s); now != before {
			t.Fatalf("an apply killed at %q, and its recovery at %q:\n%s\nwant:\n%s", left, points, now, before)
		}
	}
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
	if now := stateOf(t, s); now != before {
		t.Errorf("undone:\n%s\nwant:\n%s", now, before)
	}
}

// A power loss leaves any part of what was being written to the journal: of each line and of each
// half line the next command makes all or nothing.
func TestATornJournalIsAllOrNothing(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n", "gone": "gone\n"})
	wantCode(t, s.Run("echo new > f; rm gone; echo made > made", "--preset", "full-access"), 0)
	before := stateOf(t, s)
	journal := func() string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(s.Home, "history", "*", "*", "journal"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no journal: %v", err)
		}
		return found[len(found)-1]
	}
	for _, point := range []string{"journal: ready", "journal: placing", "journal: committed"} {
		s.KilledAt(point, "apply", s.Name)
		text, err := os.ReadFile(journal())
		if err != nil {
			t.Fatal(err)
		}
		durable := 0 // what is durable before the first step
		if point == "journal: committed" {
			durable = bytes.LastIndex(text, []byte(`{"rest"`))
		}
		for _, length := range cuts(text, durable) {
			if length == len(text) && point == "journal: committed" {
				continue // complete
			}
			if now := stateOf(t, s); now == before {
				s.KilledAt(point, "apply", s.Name)
			}
			if err := os.Truncate(journal(), int64(length)); err != nil {
				t.Fatal(err)
			}
			appliesNothing(t, s)
			if now := stateOf(t, s); now != before {
				t.Fatalf("killed at %q, %d of %d bytes of the journal:\n%s\nwant:\n%s", point, length, len(text), now, before)
			}
		}
	}
	wantCode(t, s.Agentfense("apply", s.Name), 0)
	if content := s.Read("f") + s.Read("made"); content != "new\nmade\n" {
		t.Errorf("applied %q", content)
	}
}

// cuts returns the lengths of text, from least on, that end a line or half of one.
func cuts(text []byte, least int) (lengths []int) {
	start := 0
	for line := range bytes.Lines(text) {
		for _, length := range []int{start, start + len(line)/2, start + len(line) - 1} {
			if length >= least {
				lengths = append(lengths, length)
			}
		}
		start += len(line)
	}
	return append(lengths, len(text))
}

// What a person edits after the kill stays, and is named.
func TestAnEditAfterAKilledApplyStays(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "old\n", "b": "old\n"})
	wantCode(t, s.Run("echo new > a; echo new > b", "--preset", "full-access"), 0)
	s.KilledAt("sync: settled", "apply", s.Name) // all placed and committed
	wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
	s.KilledAt("journal: taken", "apply", s.Name) // a is placed, b is not
	if got := s.Read("a") + s.Read("b"); got != "new\nold\n" {
		t.Fatalf("the killed apply has placed %q", got)
	}
	if err := os.WriteFile(s.Source+"/a", []byte("edited\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := appliesNothing(t, s); !strings.Contains(said, "not restored: a: it has changed since") {
		t.Errorf("said %q", said)
	}
	if got := s.Read("a") + s.Read("b"); got != "edited\nold\n" {
		t.Errorf("the source has %q", got)
	}
	if r := s.Agentfense("apply", s.Name); r.Code == 0 || s.Read("a") != "edited\n" {
		t.Errorf("exit code %d, a holds %q\n%s", r.Code, s.Read("a"), r.Stdout)
	}
}

// Many files are placed at the same time. A kill midway leaves all or nothing, too.
func TestAKilledApplyOfManyFilesIsAllOrNothing(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		t.Run(name, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"old/f": "old\n"}, options...)
			for i := range 150 {
				s.Write(fmt.Sprintf("d/f%d", i), "old\n")
			}
			before := stateOf(t, s)
			wantCode(t, s.Run("mkdir new; for i in $(seq 150); do echo changed $i > d/f$((i - 1)); echo new $i > new/f$i; done; rm old/f", "--preset", "full-access"), 0)
			for _, point := range []string{"journal: placing", "sync: staged", "sync: swapped", "journal: taken", "sync: one placed"} {
				s.KilledAt(point, "apply", s.Name)
				appliesNothing(t, s)
				if now := stateOf(t, s); now != before {
					t.Fatalf("killed at %q:\n%s\nwant:\n%s", point, now, before)
				}
			}
			wantCode(t, s.Agentfense("apply", s.Name), 0)
			if content := s.Read("d/f149") + s.Read("new/f1"); content != "changed 150\nnew 1\n" {
				t.Errorf("applied %q", content)
			}
			wantCode(t, s.Agentfense("undo", s.Name, "--yes"), 0)
			if now := stateOf(t, s); now != before {
				t.Errorf("undone:\n%s\nwant:\n%s", now, before)
			}
		})
	}
}
