package launch

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/confine/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/confine/isolate/docker"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Cleanup removes what a killed supervisor of sb has left: its cgroup,
// with every process still in it, what it was just starting, or its container and
// docker's mounts. All else of a supervisor ends with it. What is a live supervisor's is left
// alone.
func Cleanup(sb *record.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), clearPatience)
	defer cancel()
	return unlessHeld(sb, func(lock *record.Lock) error { return clearRemains(ctx, sb, lock) })
}

// unlessHeld calls do while nobody else can hold the sandbox. It does nothing
// if somebody does, or if the sandbox is gone.
func unlessHeld(sb *record.Sandbox, do func(*record.Lock) error) error {
	lock, err := sb.TryLock(record.PurposeClear)
	if held := (*record.HeldError)(nil); errors.As(err, &held) || errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	return do(lock)
}

// clearRemains is Cleanup while the sandbox is held.
func clearRemains(ctx context.Context, sb *record.Sandbox, lock *record.Lock) error {
	r := sb.Record()
	if err := endLeft(ctx, sb, lock); err != nil {
		return err
	}
	if r.Runtime == record.RuntimeDocker {
		return errors.Join(ClearMounts(sb.Dir()), docker.New(docker.Options{}).Clear(ctx, string(r.ID), sb.Dir()))
	}
	if GroupLimits(r).IsZero() {
		return nil
	}
	host, err := cgroup.Detect()
	if err != nil || !host.Usable() {
		return err
	}
	// Making a group anew kills and removes a dead owner's.
	g, err := host.Create(string(r.ID), cgroup.GroupLimits{})
	if errdefs.Is(err, errdefs.Exists) {
		return nil
	}
	if err != nil {
		return err
	}
	return g.Delete()
}

// endLeft ends the processes that a killed supervisor has left, if one was.
// Containers are docker's to end.
func endLeft(ctx context.Context, sb *record.Sandbox, lock *record.Lock) error {
	if !sb.Supervised() {
		return nil
	}
	if r := sb.Record(); r.Runtime != record.RuntimeDocker {
		if err := bwrap.EndLeft(ctx, string(r.ID), r.HostUID); err != nil {
			return err
		}
	}
	return lock.SetSupervised(false)
}

// clearPatience bounds the wait for the docker daemon.
const clearPatience = 20 * time.Second

// ClearMounts unmounts what is mounted for docker in a sandbox's directory.
func ClearMounts(dir string) error {
	for _, name := range []string{ViewDir, HomeViewDir, TerminalsDir, NotesDir} {
		for {
			err := unix.Unmount(filepath.Join(dir, name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is
				break
			}
			if err != nil {
				return errdefs.New(errdefs.Internal, "unmount %s: %w", name, err)
			}
		}
	}
	return nil
}

// clearRemainsOf is Cleanup by name.
func clearRemainsOf(home, name string) error {
	h, err := record.OpenHomeAt(home)
	if err != nil {
		return err
	}
	sb, err := h.Open(name)
	if err != nil {
		return err
	}
	return Cleanup(sb)
}

// GroupLimits are those of a sandbox's limits that a cgroup enforces.
func GroupLimits(r record.Record) cgroup.GroupLimits {
	return cgroup.GroupLimits{MemoryBytes: r.Limits.MemoryBytes, CPUs: r.Limits.CPUs, CPUShares: r.Limits.CPUShares, PIDs: r.Limits.PIDs}
}

// afterDeath waits for a supervisor and clears up after one that was killed.
func (l *Lease) afterDeath() error {
	state, err := l.process.Wait()
	if err != nil || state.Success() {
		return err
	}
	return errors.Join(errdefs.New(errdefs.Unavailable, "supervisor: ended by %s", state), clearRemainsOf(l.home, l.name))
}

// The supervisor's own mounts in the sandbox's directory, in its own mount
// namespace only.
const (
	ViewDir      = "view"
	HomeViewDir  = "homeview"
	TerminalsDir = "terminals"
	NotesDir     = "notes"
)
