package attack_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

// Apply never silently overwrites what the user changes in the source while a sandbox runs,
// in whichever way: it reports a conflict before it changes anything.
func TestTheUsersChangesAreNotOverwritten(t *testing.T) {
	for _, tt := range []struct {
		name   string
		inside string // what the sandbox does to f
		change func(path string) error
	}{
		{
			"the user writes what the sandbox wrote", "echo sandbox > f",
			func(p string) error { return os.WriteFile(p, []byte("user\n"), 0o644) },
		},
		{"the user replaces it by rename, with the same size and time", "echo sandbox > f", replaceAlike},
		{"the user removes it", "echo sandbox >> f", os.Remove},
		{"the user changes its mode, too", "chmod 755 f", func(p string) error { return os.Chmod(p, 0o600) }},
		{"the user puts a directory in its place", "echo sandbox > f", func(p string) error {
			return swapFor(p, func() error { return os.MkdirAll(p+"/x", 0o755) })
		}},
		{"the user puts a link in its place", "echo sandbox > f", func(p string) error {
			return swapFor(p, func() error { return os.Symlink("kept", p) })
		}},
		{
			"the user writes what the sandbox removed", "rm f",
			func(p string) error { return os.WriteFile(p, []byte("user\n"), 0o644) },
		},
		{
			"the user writes what the sandbox moved away", "mv f g",
			func(p string) error { return os.WriteFile(p, []byte("user\n"), 0o644) },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"f": "old\n", "kept": "kept\n", "also": "also\n"})
			d := s.Talk(wait, nil, "--preset", "full-access") // one supervisor for all of it
			if got := d.Hear(); got != "waiting" {
				t.Fatal(got)
			}
			prints(t, s, tt.inside+"; echo sandbox > also", "")
			if err := tt.change(filepath.Join(s.Source, "f")); err != nil {
				t.Fatal(err)
			}
			untouched := s.Untouched()
			before := s.Run("ls -lR; cat f g also kept").Stdout
			r := s.Agentfense("apply", s.Name)
			if r.Code != 1 || !strings.Contains(r.Stdout, "conflict") || !strings.Contains(r.Stderr, "nothing applied") {
				t.Errorf("apply: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
			if r := s.Agentfense("apply", s.Name, "--dry-run"); !strings.Contains(r.Stdout, "conflict") {
				t.Errorf("a dry run tells no conflict:\n%s", r.Stdout)
			}
			untouched()
			if after := s.Run("ls -lR; cat f g also kept").Stdout; after != before {
				t.Errorf("the sandbox's version changed from\n%s\nto\n%s", before, after)
			}
			// What did not change under it is applied by name.
			agentfense(t, s, "apply", s.Name, "also")
			if got := s.Read("also"); got != "sandbox\n" {
				t.Errorf("also holds %q", got)
			}
			if r := d.End(); r.Code != 0 {
				t.Error(r.Stderr)
			}
		})
	}
}

// replaceAlike replaces a file by another of the same size and mtime.
func replaceAlike(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", []byte("usr\n"), 0o644); err != nil {
		return err
	}
	if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func swapFor(path string, make func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return make()
}

// wait keeps the sandbox running until the end of its input.
var wait = program("wait", func(in *inside, _ []string) {
	in.checks++
	os.Stdout.WriteString("waiting\n")
	bufio.NewScanner(os.Stdin).Scan()
})

// Where apply merges, the source has the change of the user and that of the sandbox.
func TestTheUsersChangesAreMerged(t *testing.T) {
	const old = "1\n2\n3\n4\n5\n"
	for _, tt := range []struct {
		name, inside string
		change       func(path string) error
		want         string
		mode         os.FileMode
	}{
		{
			"the user changes the mode of what the sandbox wrote", "sed -i s/5/five/ f",
			func(p string) error { return os.Chmod(p, 0o600) }, "1\n2\n3\n4\nfive\n", 0o600,
		},
		{
			"the user writes what the sandbox gave another mode", "chmod 755 f",
			func(p string) error { return os.WriteFile(p, []byte("user\n"), 0o644) }, "user\n", 0o755,
		},
		{
			"the user writes another line", "sed -i s/5/five/ f",
			func(p string) error { return os.WriteFile(p, []byte("one\n2\n3\n4\n5\n"), 0o644) }, "one\n2\n3\n4\nfive\n", 0o644,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"f": old})
			wantCode(t, s.Run(tt.inside, "--preset", "full-access"), 0)
			if err := tt.change(filepath.Join(s.Source, "f")); err != nil {
				t.Fatal(err)
			}
			r := s.Agentfense("apply", s.Name)
			wantCode(t, r, 0)
			wantLines(t, r.Stdout, "merged\tM\tf")
			info, err := os.Stat(filepath.Join(s.Source, "f"))
			if err != nil || info.Mode().Perm() != tt.mode || s.Read("f") != tt.want {
				t.Errorf("f is %q (%v, %v), want %q (%v)", s.Read("f"), info.Mode(), err, tt.want, tt.mode)
			}
		})
	}
}

// The sandbox sees the user's present version of files that it has not changed, and its own
// version of the others.
func TestTheSandboxSeesTheUsersChanges(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"a": "old\n", "b": "old\n", "gone": "old\n", "dir/x": "x\n"})
	d := s.Talk(wait, nil, "--preset", "full-access")
	if got := d.Hear(); got != "waiting" {
		t.Fatal(got)
	}
	prints(t, s, "cat a b gone dir/x; echo mine > b", "old\nold\nold\nx\n")
	s.Write("a", "new and longer\n")
	s.Write("b", "new\n")
	s.Write("born", "born\n")
	s.Write("dir/y", "y\n")
	if err := os.Remove(filepath.Join(s.Source, "gone")); err != nil {
		t.Fatal(err)
	}
	// The news is on its way: each arrives without a time of its own.
	prints(t, s, `until [ -e born ] && [ ! -e gone ] && [ -e dir/y ] && [ "$(cat a)" = "new and longer" ]; do :; done
cat a b born dir/y; ls dir`, "new and longer\nmine\nborn\ny\nx\ny\n")
	if got, want := agentfense(t, s, "diff", s.Name, "--name-status"), "M\tb\n"; got != want {
		t.Errorf("diff: %q, want %q", got, want)
	}
	if r := d.End(); r.Code != 0 {
		t.Error(r.Stderr)
	}
}
