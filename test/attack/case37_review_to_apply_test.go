package attack_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Apply does not apply a file that a running sandbox has changed, in whichever way, after
// it was shown. It applies the other shown changes.
func TestWhatChangesAfterTheReviewIsLeftOut(t *testing.T) {
	for _, tt := range []struct {
		name  string
		after string   // what the sandbox does when f was shown
		left  []string // what apply names
	}{
		{"other bytes, of the same size and time", "touch -r f /tmp/t; printf 'evil\\n' > f; touch -r /tmp/t f", []string{"f"}},
		{"other bytes by rename", "printf 'evil\\n' > /tmp/t; touch -r f /tmp/t; cp -p /tmp/t g; mv g f", []string{"f"}},
		{"other bytes through a mapping's file", "touch -r f /tmp/t; printf evil | dd of=f conv=notrunc 2> /tmp/dd; touch -r /tmp/t f", []string{"f"}},
		{"a new file", "printf evil > .envrc", []string{".envrc"}},
		{"a new file in a directory that was shown", "printf evil > new/evil", []string{"new/evil"}},
		{"a link in its place", "rm f; ln -s /etc/passwd f", []string{"f"}},
		{"a directory in its place", "rm f; mkdir f; printf evil > f/x", []string{"f", "f/x"}},
		{"an executable", "chmod +x f", []string{"f"}},
		{"no file", "rm f", []string{"f"}},
		{"the old content", "printf 'old\\n' > f", []string{"f"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachUser(t, func(t *testing.T, who ...harness.Option) {
				s := harness.New(t, binary, map[string]string{"f": "old\n", "also": "old\n"}, who...)
				agentfense(t, s, "run", "--preset", "full-access", "--name", s.Name, "--dir", s.Source, "--detach")
				agentfense(t, s, "exec", s.Name, "--", "sh", "-c", "printf 'good\\n' > f; printf 'good\\n' > also; mkdir new; printf n > new/n")
				if shown := agentfense(t, s, "diff", s.Name); !strings.Contains(shown, "+good") {
					t.Fatalf("diff shows\n%s", shown)
				}
				agentfense(t, s, "exec", s.Name, "--", "sh", "-c", tt.after)
				for _, dry := range []string{"--dry-run", ""} {
					r := s.Agentfense(strings.Fields("apply " + s.Name + " " + dry)...)
					if r.Code != 3 {
						t.Errorf("apply %s: exit code %d\n%s", dry, r.Code, r.Stderr)
					}
					for _, path := range tt.left {
						if !strings.Contains(r.Stdout, "changed_since_review\t") || !namesLeft(r.Stdout, path) {
							t.Errorf("apply %s does not say that %s was left out:\n%s", dry, path, r.Stdout)
						}
					}
				}
				for path, what := range contents(t, s.Source) {
					if strings.Contains(what, "evil") || strings.Contains(what, "passwd") || path == ".envrc" {
						t.Errorf("%s reached the source: %s", path, what)
					}
				}
				if got := s.Read("also"); got != "good\n" {
					t.Errorf("the rest was not applied: also has %q", got)
				}
				if info, err := os.Lstat(filepath.Join(s.Source, "f")); err != nil || info.Mode() != 0o644 {
					t.Errorf("f is %v, %v", info.Mode(), err)
				}
				agentfense(t, s, "stop", s.Name)
			})
		})
	}
}

// contents are the files below dir: their content, or "-> " and the target.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		var what []byte
		switch entry.Type() {
		case 0:
			what, err = os.ReadFile(path)
		case fs.ModeSymlink:
			var target string
			target, err = os.Readlink(path)
			what = []byte("-> " + target)
		}
		name, _ := filepath.Rel(dir, path) // both are absolute
		found[name] = string(what)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// namesLeft reports whether apply's output says that path was left out.
func namesLeft(output, path string) bool {
	for line := range strings.Lines(output) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) > 2 && f[0] == "changed_since_review" && f[2] == path {
			return true
		}
	}
	return false
}

// If a program keeps rewriting a file, alternating between two contents of the same size
// and time, apply writes only the shown content to the source, or none.
func TestARewriteDuringApplyIsLeftOut(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"f": "old\n"})
	agentfense(t, s, "run", "--preset", "full-access", "--name", s.Name, "--dir", s.Source, "--detach", "--", "sh", "-c", `
touch -d 2020-01-01 /tmp/t
head -c 300000 /dev/zero | tr '\0' g > /tmp/good; head -c 300000 /dev/zero | tr '\0' e > /tmp/evil
while :; do for x in good evil; do cat /tmp/$x > f; touch -r /tmp/t f; done; done`)
	for range 10 {
		agentfense(t, s, "diff", s.Name)
		r := s.Agentfense("apply", s.Name)
		if r.Code != 0 && r.Code != 3 {
			t.Fatalf("apply: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
		}
		if r.Code == 3 && !namesLeft(r.Stdout, "f") {
			t.Errorf("apply does not say what was left out:\n%s", r.Stdout)
		}
	}
	agentfense(t, s, "stop", s.Name)
	before := s.Read("f")
	r := s.Agentfense("diff", s.Name)
	shown := r.Stdout
	if r := s.Agentfense("apply", s.Name); r.Code != 0 {
		t.Errorf("apply of what does not run any more: exit code %d\n%s", r.Code, r.Stderr)
	}
	if strings.Contains(shown, "+++ b/f") && s.Read("f") == before {
		t.Error("nothing was applied")
	}
}

// A change that was discarded, or reverted in the source after an apply, can be applied
// only after another review: an earlier review of the same content no longer counts.
func TestWhatWasDiscardedIsNotAppliedWhenItIsMadeAgain(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a": "a\n"}, who...)
		agentfense(t, s, "run", "--preset", "full-access", "--name", s.Name, "--dir", s.Source, "--detach")
		defer agentfense(t, s, "stop", s.Name)
		inside := func(script string) { agentfense(t, s, "exec", s.Name, "--", "sh", "-c", script) }
		for _, taken := range []struct {
			name string
			back func()
		}{
			{"discarded", func() { agentfense(t, s, "discard", s.Name, "evil") }},
			{"discarded while it was away", func() {
				inside("rm evil")
				agentfense(t, s, "discard", s.Name)
				inside("echo b >> a")
				agentfense(t, s, "diff", s.Name, "a")
			}},
			{"applied and removed", func() {
				agentfense(t, s, "apply", s.Name, "evil")
				if err := os.Remove(filepath.Join(s.Source, "evil")); err != nil {
					t.Fatal(err)
				}
			}},
		} {
			inside("echo evil > evil; echo b >> a")
			agentfense(t, s, "diff", s.Name)
			taken.back()
			inside("echo evil > evil")
			r := s.Agentfense("apply", s.Name)
			if r.Code != 3 || !namesLeft(r.Stdout, "evil") || exists(filepath.Join(s.Source, "evil")) {
				t.Errorf("%s: apply: exit code %d\n%s%s", taken.name, r.Code, r.Stdout, r.Stderr)
			}
			if !strings.Contains(r.Stdout, "applied\tM\ta") {
				t.Errorf("%s: what was shown is not applied:\n%s", taken.name, r.Stdout)
			}
			agentfense(t, s, "diff", s.Name)
			agentfense(t, s, "discard", s.Name)
		}
	})
}
