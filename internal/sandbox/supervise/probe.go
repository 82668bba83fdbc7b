package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/overlay"
)

// ProbeMain tries in a supervisor's namespaces what not every sandbox needs: args are
// launch.Network, or launch.Scratch and the state directory. It returns the exit code of the
// process, which says on stderr what fails.
func ProbeMain(args []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	err := errdefs.New(errdefs.Internal, "probe: bad arguments")
	switch {
	case len(args) > 0 && args[0] == launch.Network:
		err = probeNetwork(ctx)
	case len(args) > 1 && args[0] == launch.Scratch:
		err = probeScratch(ctx, args[1])
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1
	}
	return 0
}

// probeNetwork makes a network of named hosts with none.
func probeNetwork(ctx context.Context) error {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	const nobody = 65534
	e, err := egress.Start(egress.Options{
		Program: program, UID: nobody, GID: nobody,
		Allowed: func(egress.Allowed) {}, Denied: func(egress.Denied) {}, Inbound: func(publish.Inbound) {}, Failed: func(error) {},
	})
	if err != nil {
		return err
	}
	return errors.Join(e.Ready(ctx), e.Close())
}

// probeScratch mounts a scratch directory below the state directory, for this process alone.
func probeScratch(ctx context.Context, state string) (err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(state, ".probe-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	paths, err := scratch.ParseAll([]string{"probe"})
	if err != nil {
		return err
	}
	view := filepath.Join(dir, "view")
	target := filepath.Join(view, "probe")
	var opened []*os.File
	for _, path := range []string{view, target, filepath.Join(dir, "upper"), filepath.Join(dir, "work"), filepath.Join(dir, "empty")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		opened = append(opened, f)
	}
	if err := overlay.Mount(ctx, view, []*scratch.Content{{Path: paths[0], Upper: opened[2], Work: opened[3], Empty: opened[4]}}); err != nil {
		return err
	}
	return unix.Unmount(target, unix.MNT_DETACH)
}
