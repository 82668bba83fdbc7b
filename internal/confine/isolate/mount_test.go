package isolate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// special makes a special file, and its parent directories.
func special(t *testing.T, path string, kind uint32) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(path, kind|0o666, 0); err != nil {
		t.Fatal(err)
	}
}

func TestMountsWithSocketsAndFIFOsAreRefused(t *testing.T) {
	tests := []struct {
		name string
		path string // below the mount
		kind uint32
		text string // of the refusal, empty for none
	}{
		{"a socket at the top", "agent.sock", unix.S_IFSOCK, `socket "agent.sock"`},
		{"a socket on the third level", "a/b/agent.sock", unix.S_IFSOCK, `socket "a/b/agent.sock"`},
		{"a socket in a hidden directory", ".gnupg/S.gpg-agent", unix.S_IFSOCK, `socket ".gnupg/S.gpg-agent"`},
		{"a socket with a name that controls the terminal", "a\x1b[2J", unix.S_IFSOCK, `socket "a\x1b[2J"`},
		{"a FIFO at the top", "pipe", unix.S_IFIFO, `FIFO "pipe"`},
		{"a FIFO on the third level", "a/b/pipe", unix.S_IFIFO, `FIFO "a/b/pipe"`},
		{"a socket on the fourth level", "a/b/c/agent.sock", unix.S_IFSOCK, ""},
		{"a file", "a/b/file", unix.S_IFREG, ""},
		{"a socket in what does not show", "hidden/agent.sock", unix.S_IFSOCK, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			special(t, filepath.Join(dir, tt.path), tt.kind)
			err := CheckMount(dir, []string{filepath.Join(dir, "hidden")})
			if tt.text == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errdefs.Is(err, errdefs.Precondition) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want it refused with %q", err, tt.text)
			}
		})
	}
}

func TestLinksOfMountsAreNotFollowed(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	special(t, filepath.Join(elsewhere, "agent.sock"), unix.S_IFSOCK)
	for name, target := range map[string]string{"dir": elsewhere, "socket": elsewhere + "/agent.sock", "round": "."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := CheckMount(dir, nil); err != nil {
		t.Error(err)
	}
}

func TestMountsTooLargeToCheckAreRefused(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for left, want := range map[int]bool{19: true, 20: false} {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = (&mountCheck{source: dir, left: left}).look(fd, ".", 1)
		if errdefs.Is(err, errdefs.Precondition) != want || err != nil && !strings.Contains(err.Error(), "too many") {
			t.Errorf("of 20 names %d may be looked at: %v", left, err)
		}
	}
}
