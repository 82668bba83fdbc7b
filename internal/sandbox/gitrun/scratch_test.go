package gitrun

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What killed processes have left is removed, and what others use stays.
func TestScratchDirectoriesAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	used, err := makeScratch(nil)
	if err != nil {
		t.Fatal(err)
	}
	left, err := makeScratch(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left.path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left.lock.Close() // as the kernel does for a killed process
	next, err := makeScratch(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{used.path: true, left.path: false, next.path: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(used.remove(), next.remove()); err != nil {
		t.Error(err)
	}
}
