//go:build linux

package safefs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What killed processes have left is removed, and what others use stays.
func TestScratchDirectoriesAreSwept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	used, err := MakeScratch("agentfense-test-")
	if err != nil {
		t.Fatal(err)
	}
	left, err := MakeScratch("agentfense-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left.Path, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left.lock.Close() // as the kernel does for a killed process
	other := filepath.Join(os.TempDir(), "another")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	next, err := MakeScratch("agentfense-test-")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{used.Path: true, left.Path: false, next.Path: true, other: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := errors.Join(used.Remove(), next.Remove()); err != nil {
		t.Error(err)
	}
}
