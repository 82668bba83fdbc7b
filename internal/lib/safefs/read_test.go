package safefs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// special makes one of each kind of file in dir that must not be read.
func special(t *testing.T, dir string) map[string]string {
	t.Helper()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("good"), []byte("good"), 0o644))
	must(t, unix.Mkfifo(at("fifo"), 0o644))
	must(t, os.Mkdir(at("directory"), 0o755))
	must(t, os.WriteFile(at("huge"), nil, 0o644))
	must(t, os.Truncate(at("huge"), 1<<40))
	must(t, os.Symlink("good", at("link")))
	must(t, os.Symlink("/dev/zero", at("zero")))
	must(t, os.Symlink(".", at("way")))
	socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(socket)
	must(t, unix.Bind(socket, &unix.SockaddrUnix{Name: at("socket")}))
	return map[string]string{
		"fifo": "is a FIFO", "directory": "is a directory", "huge": "longer than 8 bytes", "link": "is a symbolic link",
		"zero": "is a symbolic link", "way/good": "on the way", "socket": "is a socket",
	}
}

func TestReadRegularReadsRegularFilesAlone(t *testing.T) {
	dir := t.TempDir()
	for name, want := range special(t, dir) {
		_, err := ReadRegularIn(dir, name, 8)
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if text, err := ReadRegularIn(dir, "good", 4); err != nil || string(text) != "good" {
		t.Errorf("a regular file: %q, %v", text, err)
	}
	if _, err := ReadRegularIn(dir, "absent", 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if _, err := ReadRegularIn(dir, "../../"+filepath.Base(dir)+"/good", 8); err == nil {
		t.Error("a path out of the directory was read")
	}
}

func TestReadNamedFollowsLinksAndWaitsForNothing(t *testing.T) {
	dir := t.TempDir()
	errs := special(t, dir)
	errs["zero"] = "is a device"
	for _, followed := range []string{"link", "way/good"} {
		delete(errs, followed)
		if text, err := ReadNamed(filepath.Join(dir, followed), 8); err != nil || string(text) != "good" {
			t.Errorf("%s: %q, %v", followed, text, err)
		}
	}
	for name, want := range errs {
		_, err := ReadNamed(filepath.Join(dir, name), 8)
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := ReadNamed(filepath.Join(dir, "absent"), 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func TestReadNamedReadsAPipeOfThisProcess(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	_, err = w.WriteString("good")
	must(t, errors.Join(err, w.Close()))
	name := strings.Replace(ProcPath(int(r.Fd())), "/proc/self", "/dev", 1)
	if text, err := ReadNamed(name, 8); err != nil || string(text) != "good" {
		t.Errorf("%s: %q, %v", name, text, err)
	}
}
