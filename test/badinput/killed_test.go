package badinput_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// makeClosed makes directories that their owner could not fill, with files in
// them, and one that takes the place of a file.
const makeClosed = `mkdir -p d/in e; echo 1 > d/a; echo 2 > d/in/b; echo 3 > e/c
rm was; mkdir was; echo 4 > was/d
chmod 0100 d/in; chmod 0555 d; chmod 0500 e was`

// wantModes fails the test unless the directories of the source have the modes.
func wantModes(t *testing.T, s *harness.Sandbox, want map[string]os.FileMode) {
	t.Helper()
	for dir, mode := range want {
		info, err := os.Lstat(filepath.Join(s.Source, dir))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != os.ModeDir|mode {
			t.Errorf("%s has the mode %s, want %s", dir, info.Mode(), os.ModeDir|mode)
		}
	}
}

var closedModes = map[string]os.FileMode{"d": 0o555, "d/in": 0o100, "e": 0o500, "was": 0o500}

// openUp lets the end of the test remove what nobody may write in.
func openUp(t *testing.T, s *harness.Sandbox) {
	t.Cleanup(func() {
		for _, dir := range []string{"d", "d/in", "e", "was"} {
			_ = os.Chmod(filepath.Join(s.Source, dir), 0o700)
		}
	})
}

// An apply that is killed while it fills directories leaves them open. The next
// gives them their modes, whatever comes in between.
func TestAKilledApplyLosesNoDirectoryMode(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		for point, how := range map[string]string{"sync: intended": "before", "sync: one placed": "midway", "sync: settled": "at the end", "sync: told": "after"} {
			t.Run(name+" "+how, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{"was": "file\n"}, options...)
				openUp(t, s)
				wantCode(t, s.Run(makeClosed+"; echo > other", "--preset", "full-access"), 0)
				s.KilledAt(point, "apply", s.Name)
				if how == "midway" {
					wantCode(t, s.Agentfense("apply", s.Name, "--dry-run"), 0)
					wantCode(t, s.Agentfense("apply", s.Name, "other"), 0)
					s.KilledAt("sync: one placed", "apply", s.Name)
				}
				wantCode(t, s.Agentfense("apply", s.Name), 0)
				wantModes(t, s, closedModes)
				if content := s.Read("e/c"); content != "3\n" {
					t.Errorf("e/c holds %q", content)
				}
				if left, err := os.ReadFile(filepath.Join(s.Home, "sandboxes", s.Name, "apply.lock")); err != nil || len(left) > 0 {
					t.Errorf("still listed: %q, %v", left, err)
				}
			})
		}
	}
}

// A discard after a killed apply restores the source first, and then drops the changes.
func TestADiscardAfterAKilledApplyRestoresTheSource(t *testing.T) {
	for _, paths := range [][]string{nil, {"d", "e", "was"}} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"was": "file\n"}, harness.Ordinary)
			openUp(t, s)
			wantCode(t, s.Run(makeClosed, "--preset", "full-access"), 0)
			s.KilledAt("sync: one placed", "apply", s.Name)
			wantCode(t, s.Agentfense(append([]string{"discard", s.Name}, paths...)...), 0)
			entries, err := os.ReadDir(s.Source)
			if err != nil || len(entries) != 1 || s.Read("was") != "file\n" {
				t.Errorf("the source has %v, %v", entries, err)
			}
			prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
		})
	}
}

// A killed apply of thousands of files is taken back and done again in seconds.
func TestAKilledApplyOfManyFilesIsDoneAgain(t *testing.T) {
	const files = 4000
	s := harness.New(t, binary, nil)
	for i := range files {
		s.Write(fmt.Sprintf("d/f%d", i), "old\n")
	}
	wantCode(t, s.Run("for f in d/*; do echo new > $f; done", "--preset", "full-access"), 0)
	s.KilledAt("sync: one placed", "apply", s.Name)
	r := s.Agentfense("apply", s.Name)
	wantCode(t, r, 0)
	if n := strings.Count(r.Stdout, "applied\t"); n != files {
		t.Errorf("%d applied", n)
	}
	for i := range files {
		if content := s.Read(fmt.Sprintf("d/f%d", i)); content != "new\n" {
			t.Fatalf("f%d holds %q", i, content)
		}
	}
}

// The sandbox changes again what an apply placed that was killed: that is no conflict,
// and the next apply brings what the sandbox has.
func TestWhatAKilledApplyPlacedCanBeChangedAgain(t *testing.T) {
	for name, options := range map[string][]harness.Option{"root": nil, "ordinary": {harness.Ordinary}} {
		for _, point := range []string{"sync: intended", "sync: staged", "sync: one placed", "sync: swapped", "sync: moved away", "sync: settled", "sync: told"} {
			t.Run(name+" "+point, func(t *testing.T) {
				s := harness.New(t, binary, map[string]string{"f": "old\n", "gone": "old\n", "back": "old\n", "x": "old\n"}, options...)
				wantCode(t, s.Run("echo first > f; echo first > new; rm gone back; chmod +x x; mkdir d; echo 1 > d/in; ln -s first link", "--preset", "full-access"), 0)
				s.KilledAt(point, "apply", s.Name)
				wantCode(t, s.Run("echo second, longer > f; echo second, longer > new; echo again > back; echo more >> x; rm -r d; echo file > d; rm link; ln -s second link", "--preset", "full-access"), 0)
				wantCode(t, s.Agentfense("apply", s.Name, "--dry-run"), 0)
				wantCode(t, s.Agentfense("apply", s.Name), 0)
				prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
				out, err := exec.Command("sh", "-c", `cd "$1" && ls -A && cat f new back x d && readlink link && test -x x`, "sh", s.Source).CombinedOutput()
				if want := "back\nd\nf\nlink\nnew\nx\nsecond, longer\nsecond, longer\nagain\nold\nmore\nfile\nsecond\n"; err != nil || string(out) != want {
					t.Errorf("the source: %v\n%swant\n%s", err, out, want)
				}
			})
		}
	}
}

// An apply to another directory that is killed at any point is gone on with by the
// next to the same directory, and the one to the source does not see it.
func TestAKilledApplyElsewhereGoesOn(t *testing.T) {
	for _, point := range []string{"sync: intended", "sync: swapped", "sync: moved away", "sync: one placed", "sync: settled", "sync: told"} {
		t.Run(point, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"old": "old\n", "gone": "gone\n", "other": "other\n"})
			to := t.TempDir()
			if out, err := exec.Command("cp", "-a", s.Source+"/.", to).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			wantCode(t, s.Run("echo changed > old; echo more >> other; rm gone; mkdir -p d; echo new > d/new; chmod 0555 d", "--preset", "full-access"), 0)
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "d"), 0o755) })
			s.KilledAt(point, "apply", s.Name, "--to", to)
			wantCode(t, s.Agentfense("apply", s.Name, "--dry-run"), 0)
			wantCode(t, s.Agentfense("apply", s.Name, "--to", to), 0)
			entries, err := os.ReadDir(to)
			if err != nil {
				t.Fatal(err)
			}
			names := ""
			for _, e := range entries {
				names += e.Name() + " "
			}
			if names != "d old other " {
				t.Errorf("it holds %s", names)
			}
			if info, err := os.Lstat(filepath.Join(to, "d")); err != nil || info.Mode().Perm() != 0o555 {
				t.Errorf("d: %v, %v", info, err)
			}
			if text, err := os.ReadFile(filepath.Join(to, "old")); err != nil || string(text) != "changed\n" {
				t.Errorf("old holds %q, %v", text, err)
			}
			if lists, err := filepath.Glob(filepath.Join(s.Home, "sandboxes", s.Name, "apply-to-*")); err != nil || len(lists) > 0 {
				t.Errorf("still listed: %q, %v", lists, err)
			}
			if s.Read("old") != "old\n" || s.Read("gone") != "gone\n" {
				t.Error("the source has changed")
			}
			wantCode(t, s.Agentfense("apply", s.Name), 0)
			t.Cleanup(func() { _ = os.Chmod(filepath.Join(s.Source, "d"), 0o755) })
			if s.Read("old") != "changed\n" {
				t.Error("the source got nothing")
			}
		})
	}
}
