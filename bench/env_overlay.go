package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/bench/host"
)

// overlay mounts the data copy-on-write in a mount namespace of the session:
// the kernel's overlayfs, or fuse-overlayfs when daemon names it. Every session
// has an upper directory of its own on the same disk.
type overlay struct {
	disk   *disk
	name   string
	lower  string
	daemon string
}

func newFuseOverlay(d *disk) candidate {
	path, err := host.LookPath("fuse-overlayfs")
	return candidate{place: fuseOverlay{overlay{disk: d, name: "fuse-overlayfs", lower: d.Source(), daemon: path}}, optional: true, err: err}
}

func (o overlay) Name() string { return o.name }

func (o overlay) Open(ctx context.Context, _ []string) (*session, error) {
	dir, err := o.disk.Fresh(o.name)
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, o.disk.Self(), "__overlay", o.lower, dir, o.daemon)
	cmd.Env = plainEnv()
	cmd.SysProcAttr = ownMounts()
	return startSession(ctx, cmd, func() error {
		// overlayfs leaves work/work with mode 0, which would stop an ordinary
		// user from removing it.
		err := os.Chmod(filepath.Join(dir, "work/work"), 0o700)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}

// overlayMain is `bench __overlay LOWER DIR DAEMON`, in a new mount namespace:
// it mounts and serves DIR/merged. The mount ends with the namespace.
func overlayMain(args []string) error {
	if len(args) != 3 {
		return errors.New("__overlay: want the lower directory, its own and the daemon")
	}
	lower, dir, daemon := args[0], args[1], args[2]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	// Names relative to the current directory need no escape in the options.
	if err := os.Chdir(dir); err != nil {
		return err
	}
	below, err := filepath.Rel(dir, lower)
	if err != nil {
		return err
	}
	data := "lowerdir=" + below + ",upperdir=upper,workdir=work"
	if daemon != "" {
		stop, err := mountByDaemon(daemon, data)
		if err != nil {
			return err
		}
		defer stop()
		return serveMain([]string{filepath.Join(dir, "merged")})
	}
	if err := mountOverlay(data); err != nil {
		return err
	}
	return serveMain([]string{filepath.Join(dir, "merged")})
}

// mountOverlay tries again as a user namespace needs it, where trusted xattrs
// are out of reach (overlayfs.rst, "userxattr").
func mountOverlay(data string) error {
	err := unix.Mount("overlay", "merged", "overlay", 0, data)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		err = unix.Mount("overlay", "merged", "overlay", 0, data+",userxattr")
	}
	if err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// mountByDaemon runs fuse-overlayfs until stop. It stays in the foreground so
// that it is our child, and dies with us.
func mountByDaemon(path, data string) (stop func(), err error) {
	var before, now unix.Statfs_t
	if err := unix.Statfs("merged", &before); err != nil {
		return nil, err
	}
	errs := &tail{}
	cmd := exec.Command(path, "-f", "-o", data, "merged")
	cmd.Stderr = errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	stop = func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	timeout := time.After(openTimeout)
	for {
		select {
		case <-ended:
			return nil, fmt.Errorf("%s: ended: %s", path, errs)
		case <-timeout:
			stop()
			return nil, fmt.Errorf("%s: did not mount within %v", path, openTimeout)
		case <-time.After(2 * time.Millisecond):
			if err := unix.Statfs("merged", &now); err == nil && now.Type != before.Type {
				return stop, nil
			}
		}
	}
}

// fuseOverlay is an overlay with a daemon, of which the memory counts.
type fuseOverlay struct{ overlay }

func (f fuseOverlay) Memory(ctx context.Context, walked bool) (int64, error) {
	f.lower = f.disk.Walked()
	return sessionMemory(ctx, f.disk.Self(), func() (*session, error) { return f.Open(ctx, nil) }, walked)
}
