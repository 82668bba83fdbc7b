package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/isolate/docker"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Sweep removes what was left in home, and on the host by supervisors of its
// sandboxes, when these and whoever looked after them were killed: mounts,
// containers, control groups with the processes in them, directories half made
// and half removed. What a live supervisor has is left alone, and so is what is
// not known to be of this home. Errors: those of what cannot be removed; the
// rest is removed all the same.
func Sweep(ctx context.Context, home *record.Home) error {
	ctx, cancel := context.WithTimeout(ctx, clearPatience)
	defer cancel()
	all, err := home.List()
	errs := []error{err}
	for _, sb := range all {
		if err := unlessHeld(sb, func(lock *record.Lock) error { return clearRemains(ctx, sb, lock) }); err != nil {
			errs = append(errs, fmt.Errorf("sandbox %s: %w", sb.Name(), err))
		}
	}
	return errors.Join(append(errs, SweepHome(home), sweepGroups(home), sweepContainers(ctx, home))...)
}

// SweepHome removes the directories of home that killed commands have left half
// made and half removed.
func SweepHome(home *record.Home) error { return home.Sweep(clearDir) }

// clearDir unmounts what is mounted in the directory of a sandbox that is gone.
// Only docker's supervisors, which are root's, mount where others see it.
func clearDir(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return errors.Join(ClearMounts(dir), docker.ClearStage(dir))
}

// sweepGroups removes the groups of dead supervisors, also of those whose
// sandboxes are gone and of those that were in another group than this process.
func sweepGroups(home *record.Home) error {
	host, err := cgroup.Detect()
	if err != nil || !host.Usable() {
		return err
	}
	return host.Sweep(func(name string) bool { return home.Knew(record.ID(name)) })
}

// sweepContainers removes the containers of dead supervisors. Only root's
// supervisors make any.
func sweepContainers(ctx context.Context, home *record.Home) error {
	if os.Geteuid() != 0 {
		return nil
	}
	err := docker.New(docker.Options{}).Sweep(ctx, func(id, dir string, remove func() error) error {
		if !home.IsOwnDir(dir) {
			return nil
		}
		sb, err := home.Open(filepath.Base(dir))
		switch {
		case errdefs.Is(err, errdefs.NotFound), err == nil && string(sb.ID()) != id:
			return remove() // of a sandbox that is gone
		case err != nil:
			return err
		}
		return unlessHeld(sb, func(*record.Lock) error { return remove() })
	})
	if errdefs.Is(err, errdefs.Unsupported) {
		return nil // no daemon, no containers; those that wait for it are marked in their sandboxes' directories
	}
	return err
}
