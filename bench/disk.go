package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A disk is the directory that holds all the benchmark makes:
//
//	source/    the data, which views show and nothing writes
//	walked/    the tree of the memory row
//	other/N    empty directories, for mounts
//	NAME/      what a place called NAME keeps
//	bin/bench  this program, so that a place need show one directory only
type disk struct {
	Below string // where the user wanted it
	Root  string
	serie atomic.Int64
}

func newDisk(below string) (*disk, error) {
	below, err := filepath.EvalSymlinks(below)
	if err != nil {
		return nil, err
	}
	if below, err = filepath.Abs(below); err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp(below, "agentfense-bench-")
	if err != nil {
		return nil, err
	}
	d := &disk{Below: below, Root: root}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

func (d *disk) prepare() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dirs := []string{d.path("bin"), d.path("source/" + treeHome), d.path("source/" + treeOut), d.path("source/" + treeGoCache)}
	for i := range moreMounts + 1 {
		dirs = append(dirs, d.Other(i))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return copyTree(self, d.Self())
}

func (d *disk) path(name string) string { return filepath.Join(d.Root, name) }

// Source is the data.
func (d *disk) Source() string { return d.path("source") }

// Walked is the tree of the memory row.
func (d *disk) Walked() string { return d.path(treeWalked) }

// Other is the i-th of the empty directories.
func (d *disk) Other(i int) string { return d.path(fmt.Sprintf("other/%d", i)) }

// Self is this program.
func (d *disk) Self() string { return d.path("bin/bench") }

// Discard puts path out of the way until the end of the run. Nothing is removed
// in between: ext4 without a journal does not reuse the inodes of removed files
// for minutes, and passes over each of them when it makes a file, which would
// make the places' creations slower by turns.
func (d *disk) Discard(path string) error {
	to := d.path(fmt.Sprintf("discarded/%d", d.serie.Add(1)))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	err := os.Rename(path, to)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Fresh makes a new directory for place name.
func (d *disk) Fresh(name string) (string, error) {
	dir := d.path(fmt.Sprintf("%s/%d", name, d.serie.Add(1)))
	return dir, os.MkdirAll(dir, 0o755)
}

// Generate makes the trees wanted.
func (d *disk) Generate(ctx context.Context, want map[string]bool, say func(string)) error {
	for _, g := range generators {
		if !want[g.tree] {
			continue
		}
		say("making " + g.what)
		if err := g.make(ctx, d.Source()); err != nil {
			return fmt.Errorf("make %s: %w", g.what, err)
		}
	}
	if !want[treeWalked] {
		return ctx.Err()
	}
	say("making 100,000 files")
	return firstError(ctx, makeWalked(ctx, d.Walked()))
}

// Remove removes everything, except when something is still mounted there:
// removing through a mount would remove what is behind it.
func (d *disk) Remove() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], d.Root+"/") {
			return fmt.Errorf("%s is still mounted; left in place: %s", f[4], d.Root)
		}
	}
	return os.RemoveAll(d.Root)
}

// copyTree copies with modes and times, sharing blocks where the disk can.
func copyTree(from, to string) error {
	out, err := exec.Command("cp", "-a", "--reflink=auto", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp %s %s: %w: %s", from, to, err, out)
	}
	return nil
}

// fileSystems are the names of the magic numbers of statfs(2), linux/magic.h.
var fileSystems = map[int64]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.F2FS_SUPER_MAGIC: "f2fs",
	unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.NFS_SUPER_MAGIC: "nfs", unix.FUSE_SUPER_MAGIC: "fuse",
	0x2fc12fc1: "zfs",
}

// FileSystem names what native means here.
func (d *disk) FileSystem() string {
	var st unix.Statfs_t
	if err := unix.Statfs(d.Root, &st); err != nil {
		return "unknown"
	}
	if name := fileSystems[st.Type]; name != "" {
		return name
	}
	return fmt.Sprintf("file system %#x", st.Type)
}
