package auth_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/server/auth"
)

func TestServersThatStartAtOnceGetOneToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	_, err := auth.ReadToken(path)
	wantKind(t, err, errdefs.NotFound)

	var wg sync.WaitGroup
	tokens := make([]string, 16)
	for i := range tokens {
		wg.Go(func() {
			token, err := auth.DefaultToken(path)
			if err != nil {
				t.Error(err)
			}
			tokens[i] = token
		})
	}
	wg.Wait()
	for _, token := range tokens {
		if token != tokens[0] || !strings.HasPrefix(token, "afs_") {
			t.Errorf("tokens %q and %q", token, tokens[0])
		}
	}
	if read, err := auth.ReadToken(path); err != nil || read != tokens[0] {
		t.Errorf("ReadToken = %q, %v", read, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("%d files are left, want the token alone", len(left))
	}
}

func TestATokenFileIsRefused(t *testing.T) {
	token := "afs_" + strings.Repeat("a", 64)
	tests := []struct {
		name string
		make func(path string) error
		kind errdefs.Kind
		says string
	}{
		{"that the group can read", func(path string) error { return writeFile(path, token, 0o640) }, errdefs.Precondition, "mode 0640 gives other users access: run chmod 600"},
		{"that others can write", func(path string) error { return writeFile(path, token, 0o602) }, errdefs.Precondition, "mode 0602"},
		{"that is empty", func(path string) error { return writeFile(path, "", 0o600) }, errdefs.Precondition, "contains no token"},
		{"with something else in it", func(path string) error { return writeFile(path, "hunter2\n", 0o600) }, errdefs.Precondition, "contains no token"},
		{"with two tokens in it", func(path string) error { return writeFile(path, token+"\n"+token, 0o600) }, errdefs.Precondition, "contains no token"},
		{"that is a directory", func(path string) error { return os.Mkdir(path, 0o700) }, errdefs.Precondition, "not a regular file"},
		{"that is a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }, errdefs.Precondition, "not a regular file"},
		{"that is a loop", func(path string) error { return os.Symlink(path, path) }, errdefs.Invalid, "symbolic links"},
	}
	for _, tt := range tests {
		t.Run("a token file "+tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			if err := tt.make(path); err != nil {
				t.Fatal(err)
			}
			for _, read := range []func(string) (string, error){auth.ReadToken, auth.DefaultToken} {
				got, err := read(path)
				wantKind(t, err, tt.kind)
				if got != "" || err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("got %q, %v, want %q in the error", got, err, tt.says)
				}
				if err != nil && strings.Contains(err.Error(), "hunter2") {
					t.Errorf("the error repeats the file: %v", err)
				}
			}
		})
	}
}

func writeFile(path, text string, mode os.FileMode) error {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

func TestAForeignTokenFileIsRefused(t *testing.T) {
	testenv.Root(t)
	path := filepath.Join(t.TempDir(), "token")
	if _, err := auth.DefaultToken(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	_, err := auth.ReadToken(path)
	wantKind(t, err, errdefs.Precondition)
}

func TestNoTokenWhereNoneCanBeStored(t *testing.T) {
	_, err := auth.DefaultToken(filepath.Join(t.TempDir(), "absent", "token"))
	wantKind(t, err, errdefs.NotFound)

	testenv.Root(t)
	full := t.TempDir()
	if err := unix.Mount("tmpfs", full, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(full, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(full, "x"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = auth.DefaultToken(filepath.Join(full, "token"))
	wantKind(t, err, errdefs.Exhausted)
	if _, err := auth.ReadToken(filepath.Join(full, "token")); !errdefs.Is(err, errdefs.NotFound) {
		t.Errorf("after a full disk: %v, want no file", err)
	}
}
