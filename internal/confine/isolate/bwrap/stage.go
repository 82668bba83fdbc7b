package bwrap

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/confine/seccomp"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// The stage is a tmpfs that only the sandbox's thread, and bubblewrap started
// from it, can see. It stands over stageDir, which bubblewrap needs to exist
// and covers itself. On it are, under fixed names, binds of what is to appear
// inside, the sandbox's /etc, and what covers files of the kernel.
//
// It solves two things. Run as root, we drop to another user before bubblewrap
// starts, who may not walk to a view below /root; bubblewrap resolves every
// path by name, so a descriptor does not help it. And sources that are moved
// or replaced while we start are caught: each is opened once.
const stageDir = "/tmp"

// stage is what was gathered, ready for bubblewrap.
type stage struct {
	init *os.File // O_PATH, on a read-only bind
}

// Paths of the stage's parts.
const (
	stageView = stageDir + "/view"
	stageEtc  = stageDir + "/etc"
	stagePTS  = stageDir + "/pts"
	stageHome = stageDir + "/home"
	stageInit = stageDir + "/init"
	stageSelf = stageDir + "/bwrap"

	stageEmptyFile = stageDir + "/empty"
	stageEmptyDir  = stageDir + "/nothing"
	stageBootID    = stageDir + "/boot_id"
)

func stageMount(i int) string { return stageDir + "/mount" + itoa(i) }

// stageCover is what covers c.
func stageCover(c isolate.Cover) string {
	switch {
	case c.Dir:
		return stageEmptyDir
	case c.Path == "/proc/"+isolate.BootID:
		return stageBootID
	}
	return stageEmptyFile
}

// stage builds the stage in a mount namespace for the calling thread alone,
// which must be locked and never be used for anything else again.
func (p *plan) stage() (*stage, error) {
	if err := leaveHost(); err != nil {
		return nil, err
	}
	sources, err := p.openSources()
	defer func() {
		for _, s := range sources {
			s.file.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := p.readEtc(); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", stageDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "tmpfs on %s: %w", stageDir, err)
	}
	for _, s := range sources {
		if err := s.bind(); err != nil {
			return nil, err
		}
	}
	if err := p.buildEtc(); err != nil {
		return nil, err
	}
	if err := buildCovers(); err != nil {
		return nil, err
	}
	if err := remountReadOnly(stageInit); err != nil {
		return nil, err
	}
	init, err := openPath(stageInit)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "open init: %w", err)
	}
	return &stage{init: init}, nil
}

// leaveHost takes the calling thread, and with it what it starts, out of what
// bubblewrap's own namespaces would copy of the host's or leave as it is: its
// mounts, the NIS domain, and the session's keyring, by which the kernel finds
// keys for a process without its asking (request_key(2)).
func leaveHost() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return errdefs.New(errdefs.Unsupported, "mount namespace of the sandbox: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return errdefs.New(errdefs.Unsupported, "mount namespace of the sandbox: %w", err)
	}
	if err := unix.Setdomainname([]byte(noDomain)); err != nil {
		return errdefs.New(errdefs.Unsupported, "domain name of the sandbox: %w", err)
	}
	// Without a name, so that it is new and nobody else can join it.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOSYS): // a kernel without keys
		return nil
	case errors.Is(err, unix.EDQUOT):
		return errdefs.New(errdefs.Exhausted, "session keyring of the sandbox: this user has too many keys; run as root: sysctl -w kernel.keys.maxkeys=2000")
	}
	return errdefs.New(errdefs.Unsupported, "session keyring of the sandbox: %w", err)
}

// noDomain is the kernel's word for a host in no NIS domain (linux/uts.h).
const noDomain = "(none)"

// buildCovers makes what covers files of the kernel.
func buildCovers() error {
	err := makeDir(stageEmptyDir)
	if err == nil {
		err = writeNew(stageEmptyFile, nil)
	}
	if err == nil {
		err = writeNew(stageBootID, randomID())
	}
	if err != nil {
		return errdefs.New(errdefs.Internal, "stage covers: %w", cause(err))
	}
	return nil
}

// randomID is a line with a random UUID (RFC 9562, version 4).
func randomID() []byte {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it does not fail
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// source is a host object on its way to the stage.
type source struct {
	what   string // for errors, which must not name the host's path
	file   *os.File
	target string
}

// reach returns the path by which bubblewrap, at path, is executed once the
// stage covers stageDir. Elsewhere it keeps its path, which may be what gives
// it an AppArmor profile.
func (p *plan) reach(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", errdefs.New(errdefs.Unsupported, "find bubblewrap: %w", cause(err))
	}
	if !safefs.IsBelow(path, stageDir) && !safefs.IsBelow(resolved, stageDir) {
		return path, nil
	}
	p.program = resolved
	return stageSelf, nil
}

// openSources opens everything before the stage covers stageDir.
func (p *plan) openSources() ([]source, error) {
	var sources []source
	add := func(what, path, target string) error {
		f, err := openPath(path)
		if err != nil {
			return errdefs.New(kindOf(err), "open %s: %w", what, cause(err))
		}
		sources = append(sources, source{what, f, target})
		return nil
	}
	err := errors.Join(
		add("the view", p.spec.View, stageView),
		add("the sandbox's init", p.spec.Init, stageInit),
	)
	if p.program != "" {
		err = errors.Join(err, add("bubblewrap", p.program, stageSelf))
	}
	if p.spec.DevPTS != "" {
		err = errors.Join(err, add("the terminals", p.spec.DevPTS, stagePTS))
	}
	if p.spec.HomeDir != "" {
		err = errors.Join(err, add("the home directory", p.spec.HomeDir, stageHome))
	}
	for i, m := range p.mounts {
		err = errors.Join(err, add("mount "+strconv.Quote(m.Source), m.Source, stageMount(i)))
	}
	for _, d := range p.etcDirs {
		err = errors.Join(err, add(d, d, filepath.Join(stageDir, d)))
	}
	return sources, err
}

// bind puts s on the stage. Binds are recursive: in a user namespace the mounts
// below a directory may not be left out.
func (s source) bind() error {
	// Of the view this process would ask itself: killed meanwhile, it could
	// neither answer nor end.
	var st unix.Statx_t
	if err := unix.Statx(int(s.file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st); err != nil {
		return errdefs.New(errdefs.Internal, "stat %s: %w", s.what, err)
	}
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = makeDir(s.target)
	} else {
		err = os.WriteFile(s.target, nil, 0o644)
	}
	if err != nil {
		return errdefs.New(errdefs.Internal, "stage %s: %w", s.what, cause(err))
	}
	if err := unix.Mount("/proc/self/fd/"+itoa(int(s.file.Fd())), s.target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return errdefs.New(errdefs.Internal, "stage %s: %w", s.what, err)
	}
	return nil
}

// remountReadOnly makes the mount at path read-only and keeps its other flags,
// which a user namespace does not let go.
func remountReadOnly(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return errdefs.New(errdefs.Internal, "statfs init: %w", err)
	}
	const same = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME
	flags := uintptr(st.Flags) & same // ST_x equals MS_x for these, not for relatime
	if st.Flags&unix.ST_RELATIME != 0 {
		flags |= unix.MS_RELATIME
	}
	if err := unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""); err != nil {
		return errdefs.New(errdefs.Internal, "make init read-only: %w", err)
	}
	return nil
}

// makeDir makes path and its parents, readable by all whatever our umask.
func makeDir(path string) error {
	if err := os.Mkdir(path, 0o755); err == nil {
		return os.Chmod(path, 0o755)
	} else if errors.Is(err, fs.ErrExist) {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	return makeDir(path)
}

func openPath(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), filepath.Base(path)), nil
}

// seccompFile returns the filter where bubblewrap can read it.
func (p *plan) seccompFile() (*os.File, error) {
	program, err := seccomp.Filter(p.spec.UID, p.spec.GID)
	if err != nil {
		return nil, err
	}
	return dataFile("seccomp", program)
}

// dataFile returns a file in memory with data in it, to be read from the start.
func dataFile(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "memfd %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, errdefs.New(errdefs.Exhausted, "memfd %s: %w", name, err)
	}
	return f, nil
}

// cause strips the path, which is the host's, from an error of package os.
func cause(err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		return p.Err
	}
	return err
}

func kindOf(err error) errdefs.Kind {
	if errors.Is(err, fs.ErrNotExist) {
		return errdefs.NotFound
	}
	return errdefs.Precondition
}

func itoa(n int) string { return strconv.Itoa(n) }
