package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel's room for a socket's name is 107 bytes; a state directory may lie
// deeper.
func TestASocketMayHaveALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("a", 107))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "af.sock")
	l, err := listenSocket(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if l.Addr().String() != path {
		t.Errorf("address %s, want %s", l.Addr(), path)
	}
	if second, err := listenSocket(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another server listens on it") {
		t.Errorf("a second server: %v, %v", second, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
