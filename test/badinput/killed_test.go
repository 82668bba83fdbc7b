package badinput_test

import (
	"fmt"
	"os"
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

// What a killed apply has made stays when the rest is discarded, with its mode.
func TestADiscardAfterAKilledApplyLosesNoDirectoryMode(t *testing.T) {
	for _, paths := range [][]string{nil, {"d", "e", "was"}} {
		t.Run(fmt.Sprint(paths), func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"was": "file\n"}, harness.Ordinary)
			openUp(t, s)
			wantCode(t, s.Run(makeClosed, "--preset", "full-access"), 0)
			s.KilledAt("sync: one placed", "apply", s.Name)
			wantCode(t, s.Agentfense(append([]string{"discard", s.Name}, paths...)...), 0)
			wantModes(t, s, closedModes)
			prints(t, s.Agentfense("diff", s.Name, "--name-status"), "")
		})
	}
}

// A killed apply of thousands of files is gone on with in seconds.
func TestAKilledApplyOfManyFilesGoesOn(t *testing.T) {
	const files = 4000
	s := harness.New(t, binary, nil)
	for i := range files {
		s.Write(fmt.Sprintf("d/f%d", i), "old\n")
	}
	wantCode(t, s.Run("for f in d/*; do echo new > $f; done", "--preset", "full-access"), 0)
	s.KilledAt("sync: one placed", "apply", s.Name)
	r := s.Agentfense("apply", s.Name)
	wantCode(t, r, 0)
	if n := strings.Count(r.Stdout, "applied\t"); n != files-1 {
		t.Errorf("%d applied", n)
	}
	for i := range files {
		if content := s.Read(fmt.Sprintf("d/f%d", i)); content != "new\n" {
			t.Fatalf("f%d holds %q", i, content)
		}
	}
}
