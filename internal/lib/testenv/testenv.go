// Package testenv says what a test needs of the machine, and waits for what must come; for tests
// only.
//
// A test whose need the machine cannot meet is skipped, with the reason. The
// environment variable AGENTFENSE_REQUIRE turns that skip into a failure for
// the needs it lists ("fuse,bwrap,git"), so that a machine meant to run
// everything cannot pass by skipping. Each probe does the real thing once per
// test binary; nothing it makes outlives it.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// requireEnv lists, separated by commas, the needs that may not be missing.
const requireEnv = "AGENTFENSE_REQUIRE"

var (
	probeFUSE   = sync.OnceValue(mountFUSE)
	probeBwrap  = sync.OnceValue(runBwrap)
	probeUserNS = sync.OnceValue(runUserNS)
)

// FUSE needs /dev/fuse and the right to mount from it in a mount namespace of
// one's own (for an ordinary user: in a user namespace too).
func FUSE(t testing.TB) {
	t.Helper()
	check(t, "fuse", probeFUSE())
}

// Bwrap needs a bubblewrap that can build the namespaces agentfense asks of it.
func Bwrap(t testing.TB) {
	t.Helper()
	check(t, "bwrap", probeBwrap())
}

// UserNS needs user namespaces for ordinary users.
func UserNS(t testing.TB) {
	t.Helper()
	check(t, "userns", probeUserNS())
}

// Root needs the effective user to be root.
func Root(t testing.TB) {
	t.Helper()
	check(t, "root", rootOnly())
}

func rootOnly() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("running as uid %d, not as root", uid)
	}
	return nil
}

// Landlock needs a kernel that has Landlock enabled, of that version of its ABI
// or a later one.
func Landlock(t testing.TB, version int) {
	t.Helper()
	const askVersion = 1 // LANDLOCK_CREATE_RULESET_VERSION
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, askVersion)
	var err error
	switch {
	case errno != 0:
		err = errno
	case int(n) < version:
		err = fmt.Errorf("the kernel's is of version %d, want %d", n, version)
	}
	check(t, "landlock", err)
}

// Command needs each of the programs on the PATH; a program's name is the
// need's name.
func Command(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		check(t, name, err)
	}
}

// Files needs a file with a name that matches the pattern, and returns those that there are; the
// pattern is the need's name.
func Files(t testing.TB, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = os.ErrNotExist
	}
	check(t, pattern, err)
	return found
}

// Overlay needs directories for temporary files on a file system that overlayfs can write to: not
// on overlayfs itself, as in most containers.
func Overlay(t testing.TB) {
	t.Helper()
	check(t, "overlay", TakesOverlay())
}

// TakesOverlay is the error of Overlay.
func TakesOverlay() error {
	var st unix.Statfs_t
	if err := unix.Statfs(os.TempDir(), &st); err != nil {
		return err
	}
	if st.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return fmt.Errorf("%s is on overlayfs", os.TempDir())
	}
	return nil
}

// OpenFUSE makes /dev/fuse usable by every user until the test ends, for tests
// that play an ordinary user. It needs FUSE, and Root where the device is not
// open already. Such tests exclude each other, across processes too.
func OpenFUSE(t testing.TB) {
	t.Helper()
	FUSE(t)
	const device = "/dev/fuse"
	lock, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", device, err)
	}
	info, err := lock.Stat()
	if err != nil {
		t.Fatal(err)
	}
	const open = 0o666
	if info.Mode().Perm() == open {
		return
	}
	Root(t)
	if err := lock.Chmod(open); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Chmod(info.Mode().Perm()); err != nil {
			t.Error(err)
		}
	})
}

// check skips t for a missing need, or fails it where the need is required.
func check(t testing.TB, need string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if required(os.Getenv(requireEnv), need) {
		t.Fatalf("needs %s, which %s asks for: %v", need, requireEnv, err)
	}
	t.Skipf("needs %s: %v", need, err)
}

func required(list, need string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(entry string) bool {
		return strings.TrimSpace(entry) == need
	})
}

// mountFUSE mounts a FUSE file system that nobody serves, in namespaces that
// end with the program which mounted it.
func mountFUSE() error {
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	dir, err := os.MkdirTemp("", "agentfense-needs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(dir) }()
	cmd := exec.Command("mount", "-i", "-t", "fuse",
		"-o", "fd=3,rootmode=40000,user_id=0,group_id=0", "agentfense-needs", dir)
	cmd.ExtraFiles = []*os.File{device}
	// Unshareflags, unlike Cloneflags, also makes the mounts private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return run(cmd)
}

func runBwrap() error {
	done := make(chan error)
	go func() {
		// Bubblewrap refuses ambient capabilities, which a test that plays an
		// ordinary user's supervisor has. The thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			done <- err
			return
		}
		done <- run(exec.Command("bwrap",
			"--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
			"--unshare-cgroup-try", "--disable-userns", "--new-session",
			"--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "true"))
	}()
	return <-done
}

// runUserNS makes a user namespace as an ordinary user: as nobody if we are
// root, since root may where others may not.
func runUserNS() error {
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "true")
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		}
	}
	return run(cmd)
}

// run runs cmd and reports what it printed when it failed.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if text := strings.TrimSpace(string(out)); err != nil && text != "" {
		return errors.New(text)
	}
	return err
}
