package record

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/hostpath"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// HostPath is a path on the host, as bytes. JSON and messages have it escaped.
type HostPath = hostpath.Path

// Source is the directory of which a sandbox was made, by path and by identity.
type Source struct {
	Path HostPath `json:"path"` // absolute, without symbolic links
	Dev  uint64   `json:"dev"`
	Ino  uint64   `json:"ino"`
	// Born is the birth time of the directory, in nanoseconds since 1970, because another
	// directory may reuse its inode number. 0 means unknown, or recorded before 0.4.
	Born int64 `json:"born,omitempty"`
}

// ResolveSource returns the identity of the directory at path, after checking that it can
// be a source. Errors: NotFound; Invalid if it is not a directory, or is a private part of
// the state directory; Denied if it cannot be read; Precondition if it is the current
// directory and was removed; Unavailable if its file system does not answer.
func (h *Home) ResolveSource(path string) (Source, error) {
	abs, err := filepath.Abs(path)
	if errors.Is(err, os.ErrNotExist) {
		return Source{}, errdefs.New(errdefs.Precondition, "source %s: the current directory has been removed", HostPath(path))
	}
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return Source{}, sourceError(path, err)
	}
	s := Source{Path: HostPath(abs)}
	f, err := s.open()
	if err != nil {
		return Source{}, err
	}
	defer f.Close()
	if err := s.identify(f); err != nil {
		return Source{}, sourceError(abs, err)
	}
	if err := unix.Faccessat(int(f.Fd()), ".", unix.R_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return Source{}, sourceError(abs, err)
	}
	for _, ours := range []string{h.dir, h.sandboxesDir(), h.auditDir()} {
		if abs == ours || ours != h.dir && safefs.IsBelow(abs, ours) {
			return Source{}, errdefs.New(errdefs.Invalid, "source %s: it is the state directory itself", s.Path)
		}
	}
	return s, nil
}

// Open returns a handle on the source (O_PATH|O_DIRECTORY). Errors:
// Precondition if the path now names another directory; else as
// ResolveSource.
func (s Source) Open() (*os.File, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	if err := s.IsOpen(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// IsOpen checks that f, which was opened at the path, is the source. Errors: Precondition if it
// is another directory.
func (s Source) IsOpen(f *os.File) error {
	now := Source{Path: s.Path}
	if err := now.identify(f); err != nil {
		return sourceError(string(s.Path), err)
	}
	if !s.IsSame(now) {
		return errdefs.New(errdefs.Precondition, "source %s: it is not the directory of which the sandbox was made, but another one at its path", s.Path)
	}
	return nil
}

func (s Source) open() (*os.File, error) {
	fd, err := unix.Open(string(s.Path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, sourceError(string(s.Path), err)
	}
	return os.NewFile(uintptr(fd), string(s.Path)), nil
}

// IsSame compares identities. It ignores device numbers with major 0 (btrfs, NFS, overlay,
// tmpfs), which change with each mount, and so with each reboot.
func (s Source) IsSame(other Source) bool {
	if s.Path != other.Path || s.Ino != other.Ino {
		return false
	}
	if s.Born != 0 && other.Born != 0 && s.Born != other.Born {
		return false
	}
	return s.Dev == other.Dev || unix.Major(s.Dev) == 0 && unix.Major(other.Dev) == 0
}

// CheckSource checks that other is the sandbox's source. Errors: Precondition, naming both.
func (s *Sandbox) CheckSource(other Source) error {
	own := s.Stored.Source
	switch {
	case own.IsSame(other):
		return nil
	case own.Path != other.Path:
		return errdefs.New(errdefs.Precondition, "sandbox %s: its source is %s, not %s", s.Name(), own.Path, other.Path)
	}
	return errdefs.New(errdefs.Precondition, "sandbox %s: its source is an earlier directory at %s, not the present one", s.Name(), own.Path)
}

// Reserved returns the paths in the source that no sandbox may access, for
// policy.Options.Reserved: the state directory, if the source contains it. It searches by
// identity, so that it also works for a source below a bind mount.
func (h *Home) Reserved(s Source) ([]vpath.Path, error) {
	rest := ""
	for dir := cmp.Or(h.outer, h.dir); ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return nil, HostError("state directory", &os.PathError{Op: "stat", Path: dir, Err: err})
		}
		if st.Dev == s.Dev && st.Ino == s.Ino || dir == string(s.Path) {
			p, err := vpath.Parse(rest)
			return []vpath.Path{p}, err
		}
		if dir == "/" {
			return nil, nil
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// identify sets the identity of the open directory. It omits the birth time for a device
// with major 0: overlayfs shows another one after it has copied a directory up.
func (s *Source) identify(f *os.File) error {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st)
	if err != nil {
		return err
	}
	s.Dev, s.Ino = unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino
	if st.Mask&unix.STATX_BTIME != 0 && st.Dev_major != 0 {
		s.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return nil
}

// sourceError turns an error at path into a message for a person.
func sourceError(path string, err error) error {
	kind, shown := safefs.Kind(err), HostPath(path)
	switch kind {
	case errdefs.NotFound:
		return errdefs.New(kind, "source %s: no such directory", shown)
	case errdefs.Denied:
		return errdefs.New(kind, "source %s: not readable: %w", shown, UnwrapErrno(err))
	case errdefs.Invalid:
		return errdefs.New(kind, "source %s: not a directory", shown)
	case errdefs.Unavailable:
		return errdefs.New(kind, "source %s: its file system does not answer: %w", shown, UnwrapErrno(err))
	}
	return errdefs.New(kind, "source %s: %w", shown, err)
}

// UnwrapErrno returns the cause of an os.PathError, without the path.
func UnwrapErrno(err error) error {
	if errno, is := errors.AsType[unix.Errno](err); is {
		return errno
	}
	return err
}
