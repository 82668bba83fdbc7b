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

// The stage is a tmpfs that only the sandbox's thread, and bubblewrap started from it, can
// see. It is mounted at stageDir, which bubblewrap requires and covers itself. It has,
// under fixed names, bind mounts of everything that appears inside, the sandbox's /etc, and
// the covers of kernel files.
//
// It solves two problems. Root drops to another user before bubblewrap starts, who may not
// search the path of a view below /root; bubblewrap resolves every path by name, so a
// descriptor does not help. And each source is opened only once, so that a source moved or
// replaced during the start has no effect.
const stageDir = "/tmp"

// stage is the finished stage.
type stage struct {
	init *os.File // O_PATH, on a read-only bind
}

// Paths of the stage's parts.
const (
	stageView = stageDir + "/view"
	stageEtc  = stageDir + "/etc"
	stagePTS  = stageDir + "/pts"
	stageHome = stageDir + "/home"
	stageNote = stageDir + "/notes"
	stageInit = stageDir + "/init"
	stageSelf = stageDir + "/bwrap"

	stageEmptyFile = stageDir + "/empty"
	stageEmptyDir  = stageDir + "/nothing"
	stageBootID    = stageDir + "/boot_id"
)

func stageMount(i int) string { return stageDir + "/mount" + itoa(i) }

// stageCover returns the path of the file or directory that covers c.
func stageCover(c isolate.Cover) string {
	switch {
	case c.Dir:
		return stageEmptyDir
	case c.Path == "/proc/"+isolate.BootID:
		return stageBootID
	}
	return stageEmptyFile
}

// stage builds the stage in a new mount namespace of the calling thread, which must be
// locked and have no other use afterwards.
func (p *plan) stage() (*stage, error) {
	if err := leaveHost(); err != nil {
		return nil, err
	}
	if err := p.joinNetwork(); err != nil {
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
	if err := errors.Join(p.buildCertificates(), buildCovers()); err != nil {
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

// leaveHost detaches the calling thread, and all that it starts, from state of the host
// that bubblewrap's namespaces would copy or share: its mounts, the NIS domain, and the
// session keyring, in which the kernel searches keys for a process (request_key(2)).
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
	// Without a name, so that it is new and no other process can join it.
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
	switch {
	case err == nil, errors.Is(err, unix.ENOSYS): // a kernel without keys
		return nil
	case errors.Is(err, unix.EDQUOT):
		return errdefs.New(errdefs.Exhausted, "session keyring of the sandbox: this user has too many keys; run as root: sysctl -w kernel.keys.maxkeys=2000")
	}
	return errdefs.New(errdefs.Unsupported, "session keyring of the sandbox: %w", err)
}

// joinNetwork takes the calling thread, and with it what it starts, into the network
// namespace of the spec.
func (p *plan) joinNetwork() error {
	if p.spec.NetNS == nil {
		return nil
	}
	if err := unix.Setns(int(p.spec.NetNS.Fd()), unix.CLONE_NEWNET); err != nil {
		return errdefs.New(errdefs.Unsupported, "network namespace of the sandbox: %w", err)
	}
	return nil
}

// noDomain is the kernel's value for a host without NIS domain (linux/uts.h).
const noDomain = "(none)"

// buildCovers makes the files and directories that cover kernel files.
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
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Appendf(nil, "%x-%x-%x-%x-%x\n", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// source is a file or directory of the host for the stage.
type source struct {
	what   string // for errors, which must not name the host's path
	file   *os.File
	target string
}

// reach returns the path for executing bubblewrap, which is at path, after the stage covers
// stageDir. If path is elsewhere it stays the same, because an AppArmor profile may depend
// on it.
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

// openSources opens all sources. Call it before the stage covers stageDir.
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
	if p.spec.Notes != "" {
		err = errors.Join(err, add("the notes", p.spec.Notes, stageNote))
	}
	err = errors.Join(err, p.openShim(add))
	for i, m := range p.mounts {
		if m.View != "" {
			continue // part of the views' mount
		}
		err = errors.Join(err, add("mount "+strconv.Quote(m.Source), m.Source, stageMount(i)))
	}
	for _, d := range p.etcDirs {
		err = errors.Join(err, add(d, d, filepath.Join(stageDir, d)))
	}
	return sources, err
}

// bind mounts s on the stage. The bind is recursive, because a user namespace must not omit
// the mounts below a directory.
func (s source) bind() error {
	// No stat of the view: this process serves it, and if killed during the request it
	// could neither answer nor end.
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

// remountReadOnly makes the mount at path read-only and keeps its other flags, which a user
// namespace may not clear.
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

// makeDir makes path and its parents, readable by all, whatever the umask.
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

// seccompFile returns a file with the filter.
func (p *plan) seccompFile() (*os.File, error) {
	program, err := seccomp.Filter(p.spec.UID, p.spec.GID)
	if err != nil {
		return nil, err
	}
	return dataFile("seccomp", program)
}

// dataFile returns a file in memory with data, at offset 0.
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

// cause removes the host path from an error of package os.
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
