package attack_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// A directory of the source becomes a link that leads out of it: before the apply, or between the
// apply and its undo. Neither writes, restores or removes anything behind the link.
func TestNeitherApplyNorUndoFollowsALink(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"d/f": "old\n", "d/gone": "old\n"}, who...)
		outside := t.TempDir()
		for _, name := range []string{"f", "gone", "made"} {
			writeOutside(t, s, filepath.Join(outside, name))
		}
		wantCode(t, s.Run("echo new > d/f; rm d/gone; echo new > d/made", "--preset", "full-access"), 0)
		redirect(t, s, outside)
		if r := s.Agentfense("apply", s.Name); r.Code == 0 {
			t.Errorf("apply through a link: exit code %d\n%s", r.Code, r.Stdout)
		}
		wantOutside(t, outside)
		putBack(t, s)
		agentfense(t, s, "apply", s.Name)
		redirect(t, s, outside)
		if r := s.Agentfense("undo", s.Name, "--yes"); r.Code == 0 {
			t.Errorf("undo through a link: exit code %d\n%s", r.Code, r.Stdout)
		}
		wantOutside(t, outside)
		putBack(t, s)
		// A link in place of the file itself is replaced or refused, and never followed.
		target := filepath.Join(outside, "f")
		if err := os.Remove(filepath.Join(s.Source, "d/f")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(s.Source, "d/f")); err != nil {
			t.Fatal(err)
		}
		if r := s.Agentfense("undo", s.Name, "--yes"); r.Code == 0 {
			t.Errorf("undo of a file that is a link now: exit code %d\n%s", r.Code, r.Stdout)
		}
		wantOutside(t, outside)
	})
}

// An agent plants the link: its directory becomes a link that leads out of the source, and a person
// applies that. The changes of another sandbox below the directory are then a conflict, and neither
// an apply that resolves conflicts nor undo and redo follow the link.
func TestNoApplyFollowsALinkThatAnAgentPlanted(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"d/in/f": "old\n", "d/in/gone": "old\n"})
	outside := t.TempDir()
	for _, name := range []string{"f", "gone", "made"} {
		writeOutside(t, s, filepath.Join(outside, name))
	}
	planter := *s
	planter.Name = "planter"
	wantCode(t, s.Run("echo new > d/in/f; rm d/in/gone; echo new > d/in/made", "--preset", "full-access"), 0)
	agentfense(t, s, "apply", s.Name)
	agentfense(t, s, "undo", s.Name, "--yes")
	wantCode(t, planter.Run("rm -r d/in; ln -s "+outside+" d/in", "--preset", "full-access"), 0)
	agentfense(t, s, "apply", planter.Name)
	if target, err := os.Readlink(filepath.Join(s.Source, "d/in")); err != nil || target != outside {
		t.Fatalf("the link is not applied: %q, %v", target, err)
	}
	for _, args := range [][]string{
		{"apply", s.Name},
		{"apply", s.Name, "--theirs"},
		{"apply", s.Name, "--markers"},
		{"apply", s.Name, "d/in/made"},
		{"redo", s.Name, "--yes"},
		{"discard", s.Name},
	} {
		r := s.Agentfense(args...)
		if r.Code == 0 && args[0] != "discard" {
			t.Errorf("%q below a link: exit code 0\n%s", args, r.Stdout)
		}
		wantOutside(t, outside)
	}
}

func writeOutside(t *testing.T, s *harness.Sandbox, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("outside\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Own(path)
	s.Own(filepath.Dir(path))
}

// redirect replaces the directory d of the source by a link.
func redirect(t *testing.T, s *harness.Sandbox, to string) {
	t.Helper()
	d := filepath.Join(s.Source, "d")
	if err := os.Rename(d, d+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, d); err != nil {
		t.Fatal(err)
	}
}

// putBack takes redirect back.
func putBack(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	d := filepath.Join(s.Source, "d")
	if err := os.Remove(d); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d+".away", d); err != nil {
		t.Fatal(err)
	}
}

func wantOutside(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("outside: %v, %v", entries, err)
	}
	for _, e := range entries {
		if content, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || string(content) != "outside\n" {
			t.Errorf("outside, %s holds %q, %v", e.Name(), content, err)
		}
	}
}
