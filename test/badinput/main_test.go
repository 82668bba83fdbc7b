// Package badinput_test gives agentfense sources, disks and callers that fail:
// what it says must be clear, nothing may hang, and nothing that was written
// may be lost.
package badinput_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/linetest"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// serverEnv makes this program serve a file system instead of testing.
const serverEnv = "AGENTFENSE_TEST_SERVER"

var binary string

func TestMain(m *testing.M) {
	if os.Getenv(serverEnv) != "" {
		os.Exit(serve(os.Args[1], os.Args[2]))
	}
	harness.Main(m, &binary, harness.BuildToCrash)
}

// serve shows a directory on a mount point, as a file server elsewhere would,
// until it is killed.
func serve(dir, mountpoint string) int {
	root, err := fs.NewLoopbackRoot(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := fs.Mount(mountpoint, root, &fs.Options{
		MountOptions:   fuse.MountOptions{DirectMountStrict: true, AllowOther: true},
		RootStableAttr: &fs.StableAttr{Ino: 1},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("serving")
	server.Wait()
	return 0
}

// startServer serves a directory on mountpoint for this goroutine's mount
// namespace.
func startServer(t *testing.T, dir, mountpoint string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", dir, mountpoint)
	cmd.Dir, cmd.Env, cmd.Stderr = "/", []string{serverEnv + "=1"}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	linetest.Start(t, cmd).Hear()
	return cmd
}

// killServer leaves a mount that answers nothing but an error.
func killServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
}

// ownMounts gives this test a mount namespace, which what it starts shares and
// which ends with it.
func ownMounts(t *testing.T) {
	t.Helper()
	testenv.Root(t)
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// mountTmpfs mounts an empty file system of its own on dir, with events that
// reach the namespaces made from here.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(dir) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
}

// unmount takes away what is mounted on dir, whoever still uses it.
func unmount(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }

// wantCode fails the test unless the command ended with code and said each of
// texts on standard error.
func wantCode(t *testing.T, r harness.Result, code int, texts ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", r.Code, code, r.Stdout, r.Stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("stderr does not say %q:\n%s", text, r.Stderr)
		}
	}
}

// prints fails the test unless the command succeeded and printed want.
func prints(t *testing.T, r harness.Result, want string) {
	t.Helper()
	wantCode(t, r, 0)
	if r.Stdout != want {
		t.Errorf("stdout %q, want %q\n%s", r.Stdout, want, r.Stderr)
	}
}
