package safefs

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// ReadNamed returns the content of a file that the user names. It follows symbolic links. It reads
// a pipe only if the path names a descriptor of this process: /dev/stdin, or /dev/fd/N from a
// shell's <(…). It never waits for a FIFO and never reads a device. Errors: fs.ErrNotExist,
// fs.ErrPermission; Invalid for any other file, and for one that is longer than limit bytes.
func ReadNamed(name string, limit int64) ([]byte, error) {
	f, err := openNamed(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, limit)
}

// openNamed opens what ReadNamed reads.
func openNamed(name string) (*os.File, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, syscall.ENXIO) {
		return nil, notRegular(fs.ModeSocket)
	}
	if err != nil {
		return nil, withoutName(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, withoutName(err)
	}
	if !info.Mode().IsRegular() && !(info.Mode()&fs.ModeNamedPipe != 0 && isDescriptor(name)) {
		f.Close()
		return nil, notRegular(info.Mode())
	}
	return f, nil
}

// isDescriptor reports whether name is the path of an open descriptor.
func isDescriptor(name string) bool {
	dir, number := path.Split(path.Clean(name))
	switch dir {
	case "/dev/fd/", "/proc/self/fd/":
		return strings.Trim(number, "0123456789") == ""
	}
	return dir == "/dev/" && number == "stdin"
}

// readBounded reads f to its end, up to limit: a sparse file may have any size.
func readBounded(f *os.File, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, withoutName(err)
	}
	if int64(len(text)) > limit {
		return nil, errdefs.New(errdefs.Invalid, "longer than %d bytes, the most that is read", limit)
	}
	return text, nil
}

// notRegular returns the error for a file with this mode.
func notRegular(mode fs.FileMode) error {
	what := map[fs.FileMode]string{
		fs.ModeSymlink: "a symbolic link, which is not followed", fs.ModeDir: "a directory", fs.ModeNamedPipe: "a FIFO", fs.ModeSocket: "a socket",
	}[mode.Type()]
	return errdefs.New(errdefs.Invalid, "is %s: want a regular file", cmp.Or(what, "a device"))
}

// withoutName removes the path that package os puts before the cause.
func withoutName(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
