package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/bench/serve"
)

// imageBytes is the size of a fresh file system: three times what all rows of
// five rounds leave behind. The file is sparse.
const imageBytes = 12 << 30

// onImage runs the benchmark in a file system made for it, so that the age of
// the disk does not count: an ext4 with a journal, in a file below dir, mounted
// in a mount namespace of its own that ends with the benchmark.
func onImage(ctx context.Context, dir string, args []string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("--image: only root can mount a file system; without it, choose a disk with --dir")
	}
	below, err := os.MkdirTemp(dir, "agentfense-bench-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(below)) }()
	image, mountpoint := filepath.Join(below, "image"), filepath.Join(below, "mnt")
	if err := os.Mkdir(mountpoint, 0o755); err != nil {
		return err
	}
	if err := makeImage(ctx, image); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"__image", image, mountpoint}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}

// makeImage leaves nothing for the kernel to do later: it would zero inode
// tables while the first rows are measured.
func makeImage(ctx context.Context, image string) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(imageBytes), f.Close()); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return nil
}

// imageMain mounts the image, in the namespace it was started in, and runs the
// benchmark there.
func imageMain(args []string) error {
	if len(args) < 2 {
		return errors.New("__image IMAGE MOUNTPOINT ARGUMENT…")
	}
	image, mountpoint := args[0], args[1]
	if out, err := exec.Command("mount", "-o", "loop", image, mountpoint).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", image, err, out)
	}
	if args = args[2:]; len(args) > 0 && serve.Parts[args[0]] != nil {
		return serveOnImage(args[0], args[1:], mountpoint)
	}
	o, err := parseOptions(args, os.Stderr)
	if err != nil {
		return err
	}
	o.Dir, o.Image = mountpoint, false
	return perform(o)
}

func serveOnImage(part string, args []string, mountpoint string) error {
	o, err := serve.Parse(part, args)
	if err != nil {
		return err
	}
	o.Dir = mountpoint
	ctx, stop := untilStopped()
	defer stop()
	return serve.Run(ctx, o, os.Stdout)
}
