// Package overlay mounts the scratch directories of a sandbox: overlayfs, with the directory
// of the view below, unless that is empty, and what the sandbox makes above.
//
// The process that serves a view must not access it, so another process mounts: this program
// with Verb. It opens everything beneath handles without following a link, and overlayfs
// gets descriptors: the names are the sandbox's, and those of others must not matter.
package overlay

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/worker"
)

// Verb is the hidden first word of a command line that mounts.
const Verb = "__scratch"

// job is what a process does. Its descriptors are the upper, the work and the empty directory of
// each path.
type job struct {
	View  []byte  `json:"view"`
	Paths []place `json:"paths"`
}

// place is where one of the mounts goes.
type place struct {
	What string `json:"what"` // for errors
	Path []byte `json:"path"` // relative to the view
	Own  bool   `json:"own"`  // the third directory is below, whatever the view shows
}

const perPath = 3 // descriptors

// none is the result of a job.
type none struct{}

// Mount mounts the contents on their paths in the view that is mounted at the host path
// view. It returns when the process has ended that mounts, which the kernel kills if this
// one ends. Errors: Precondition for a path that is no directory in the view; Unsupported.
func Mount(ctx context.Context, view string, contents []*scratch.Content) error {
	j := job{View: []byte(view)}
	var files []*os.File
	for _, c := range contents {
		j.Paths = append(j.Paths, place{"scratch directory " + c.Path.String(), []byte(c.Path.At().Rel()), false})
		files = append(files, c.Upper, c.Work, c.Empty)
	}
	_, err := worker.Run[none](ctx, Verb, "mount scratch directories", j, files...)
	return err
}

// MountRepository mounts a clean repository at cleangit.At in the view, which shows an empty
// directory there. Errors: as Mount.
func MountRepository(ctx context.Context, view string, c *cleangit.Content) error {
	j := job{View: []byte(view), Paths: []place{{"clean repository", []byte(cleangit.At.Rel()), true}}}
	_, err := worker.Run[none](ctx, Verb, "mount the clean repository", j, c.Upper, c.Work, c.Repository)
	return err
}

// Main is the process that mounts. It returns its exit code.
func Main() int { return worker.Main(func(j *job) (none, error) { return none{}, mountAll(j) }) }

func mountAll(j *job) error {
	view, err := unix.Open(string(j.View), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errdefs.New(errdefs.Internal, "open the view: %w", err)
	}
	defer unix.Close(view)
	for i, at := range j.Paths {
		if err := mountOne(view, at, worker.FirstFD+perPath*i); err != nil {
			return err
		}
	}
	return nil
}

// mountOne mounts on one path. first is the first of its descriptors.
func mountOne(view int, at place, first int) error {
	dir, err := openIn(view, at)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	upper, work, lower := first, first+1, dir
	if at.Own || isEmpty(dir) {
		lower = first + 2
	}
	if err := mount(dir, lower, upper, work); err != nil {
		return errdefs.New(errdefs.KindOf(err), "%s: %w", at.What, err)
	}
	return nil
}

// isEmpty reports whether the view shows nothing in a directory. Then another empty directory is
// mounted below, and the kernel need not ask the view for each new name.
func isEmpty(dir int) bool {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), "scratch")
	defer f.Close()
	_, err = f.Readdirnames(1)
	return errors.Is(err, io.EOF)
}

// openIn opens the directory at path in the view.
func openIn(view int, at place) (int, error) {
	dir, err := safefs.OpenDir(view, string(at.Path), unix.O_PATH)
	switch {
	case err == nil:
		return dir, nil
	case errors.Is(err, unix.ELOOP):
		err = errors.New("it, or a directory above it, is a symbolic link in the workspace; name the directory itself, or remove the link")
	case errors.Is(err, unix.ENOTDIR):
		err = errors.New("it is no directory in the workspace; name another, or remove what is there")
	case errors.Is(err, unix.ENOENT):
		err = errdefs.New(errdefs.Precondition, "the directory %s, which is to contain it, does not exist in the workspace; make it first", vpath.Quote(path.Dir(string(at.Path))))
	}
	return -1, errdefs.New(errdefs.Precondition, "%s: %w", at.What, err)
}

// flags and options of overlayfs. Its attributes are in user.overlay, which an ordinary user
// may write; overlayfs itself lets nobody inside set them (userxattr). It never syncs: else
// each end of a sandbox would wait until the host's file system has written all that any
// program wrote (volatile). No path is ever read from the upper directory (redirect_dir), and
// no file whose content is elsewhere (metacopy).
var flags = []string{"userxattr", "volatile"}

var options = [][2]string{
	{"redirect_dir", "nofollow"}, {"metacopy", "off"}, {"index", "off"}, {"nfs_export", "off"}, {"xino", "off"},
}

// mount mounts overlayfs on the directory dir.
func mount(dir, lower, upper, work int) error {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return unsupported(err, "")
	}
	defer unix.Close(fs)
	// By these paths, and not as descriptors: those name the host's directories in
	// /proc/self/mountinfo inside.
	dirs := [][2]string{
		{"source", "scratch"},
		{"lowerdir", safefs.ProcPath(lower)},
		{"upperdir", safefs.ProcPath(upper)},
		{"workdir", safefs.ProcPath(work)},
	}
	for _, flag := range flags {
		if err == nil {
			err = unix.FsconfigSetFlag(fs, flag)
		}
	}
	for _, o := range append(dirs, options...) {
		if err == nil {
			err = unix.FsconfigSetString(fs, o[0], o[1])
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return unsupported(err, kernelSays(fs))
	}
	mounted, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	if err != nil {
		return unsupported(err, kernelSays(fs))
	}
	defer unix.Close(mounted)
	if err := unix.MoveMount(mounted, "", dir, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return errdefs.New(errdefs.Internal, "place the mount: %w", err)
	}
	return nil
}

// kernelSays returns the kernel's last message about a mount, "" if there is none.
func kernelSays(fs int) string {
	var last string
	message := make([]byte, 512)
	for {
		n, err := unix.Read(fs, message)
		if err != nil || n <= 0 {
			return last
		}
		last = ": " + strings.TrimSpace(string(message[:n]))
	}
}

func unsupported(err error, said string) error {
	return errdefs.New(errdefs.Unsupported, "overlayfs: %w%s; scratch directories need Linux 5.11 with overlayfs (modprobe overlay), "+
		"and a state directory (AGENTFENSE_HOME) on a file system such as ext4, XFS or Btrfs", err, said)
}
