package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/bench/host"
)

// floor is the least that a view in namespaces can take to start on this machine: one process that
// mounts a FUSE file system, which passes everything on, and starts bubblewrap on it. It has no
// policy, no delta, no network namespace and no log, and only one client.
type floor struct {
	disk  *disk
	bwrap string
}

// floorName is the name of the column.
const floorName = "bwrap+fuse"

// newFloor returns the place if one of the rows is measured there.
func newFloor(d *disk, rows []row) (f *floor, err error) {
	for _, r := range rows {
		if r.Floor {
			f = &floor{disk: d}
			f.bwrap, err = host.LookPath("bwrap")
			return f, err
		}
	}
	return nil, nil
}

// Name returns the name of the column.
func (f *floor) Name() string { return floorName }

// Open is of no use: only starts are measured.
func (f *floor) Open(context.Context, []string) (*session, error) { return nil, errNotComparable }

// Start is the command for "true".
func (f *floor) Start(ctx context.Context) *exec.Cmd {
	argv := f.command(f.disk.Source(), f.disk.Source(), "true")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = ownMounts()
	return cmd
}

// command runs argv with the directory root shown at its own path. It needs ownMounts.
func (f *floor) command(root, dir string, argv ...string) []string {
	return append([]string{f.disk.Self(), floorVerb, f.bwrap, f.disk.path(floorName), root, dir}, argv...)
}

// ownMounts gives a command a mount namespace, in which an ordinary user may mount, too.
func ownMounts() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// floorVerb is the hidden verb `bench __floor BWRAP MOUNTPOINT ROOT DIR COMMAND…`, in a new mount
// namespace.
const floorVerb = "__floor"

func floorMain(args []string) error {
	if len(args) < 5 {
		return errors.New(floorVerb + ": want bwrap, a mount point, the directory to show, that to start in and a command")
	}
	bwrap, mountpoint, root, dir, argv := args[0], args[1], args[2], args[3], args[4:]
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := os.MkdirAll(mountpoint, 0o700); err != nil {
		return err
	}
	loopback, err := fs.NewLoopbackRoot(root)
	if err != nil {
		return err
	}
	forever := time.Hour
	server, err := fs.Mount(mountpoint, loopback, &fs.Options{
		EntryTimeout: &forever, AttrTimeout: &forever,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: filepath.Base(mountpoint), Name: "bench"},
	})
	if err != nil {
		return err
	}
	cmd := exec.Command(bwrap, append([]string{
		"--ro-bind", "/", "/", "--bind", mountpoint, root, "--dev", "/dev", "--proc", "/proc",
		"--unshare-all", "--share-net", "--die-with-parent", "--chdir", dir, "--",
	}, argv...)...)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	runtime.LockOSThread() // bwrap dies with the thread that started it
	err = cmd.Run()
	return errors.Join(err, server.Unmount())
}
