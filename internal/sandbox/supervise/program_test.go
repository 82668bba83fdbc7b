package supervise

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// programFile makes a program to copy.
func programFile(t *testing.T, content string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func mustCopy(t *testing.T, self *os.File, dir string) (path string, made bool) {
	t.Helper()
	path, made, err := copyProgram(self, dir)
	if err != nil {
		t.Fatal(err)
	}
	return path, made
}

func TestOneCopyOfAProgramIsMadeThatNobodyMayRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "programs")
	first := programFile(t, "first")
	path, made := mustCopy(t, first, dir)
	info, err := os.Stat(path)
	if err != nil || !made || info.Mode() != 0o111 || info.Size() != 5 {
		t.Errorf("made %v, %v, %v", made, info, err)
	}
	if again, made := mustCopy(t, first, dir); again != path || made {
		t.Errorf("the second time: %s, made %v", again, made)
	}
	if other, made := mustCopy(t, programFile(t, "other"), dir); other == path || !made {
		t.Errorf("another program: %s, made %v", other, made)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestWhatIsNoCopyIsReplaced(t *testing.T) {
	program := programFile(t, "program")
	tests := []struct {
		name  string
		spoil func(path string) error
	}{
		{"a file that can be read", func(path string) error { return os.Chmod(path, 0o755) }},
		{"half a file", func(path string) error { return os.Truncate(path, 3) }},
		{"a link", func(path string) error {
			if err := os.Rename(path, path+".away"); err != nil {
				return err
			}
			return os.Symlink(path+".away", path)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "programs")
			path, _ := mustCopy(t, program, dir)
			if os.Geteuid() != 0 && tt.name == "half a file" {
				t.Skip("nobody but root can open it for writing")
			}
			if err := tt.spoil(path); err != nil {
				t.Fatal(err)
			}
			if _, made := mustCopy(t, program, dir); !made {
				t.Error("it was taken")
			}
			if info, err := os.Lstat(path); err != nil || info.Mode() != 0o111 || info.Size() != 7 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

func TestCopiesThatNothingWasStartedFromAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "programs")
	earlier, current := programFile(t, "earlier"), programFile(t, "current")
	old, _ := mustCopy(t, earlier, dir)
	used, _ := mustCopy(t, current, dir)
	half := filepath.Join(dir, "new-1")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, path := range []string{old, used, half} {
		if err := os.Chtimes(path, now.Add(-2*unusedAfter), now.Add(-2*unusedAfter)); err != nil {
			t.Fatal(err)
		}
	}
	mustCopy(t, current, dir) // a start
	if err := removeUnused(dir, now.Add(-unusedAfter)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(used) {
		t.Errorf("%v, %v", entries, err)
	}
}
