package supervise

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/cgroup"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/isolate/bwrap"
	"github.com/agentfense/agentfense/internal/isolate/docker"
	"github.com/agentfense/agentfense/internal/sandbox"
)

// ClearRemains removes what a killed supervisor of sb has left: its cgroup,
// with every process still in it, what it was just starting, or its container and
// docker's mounts. All else of a supervisor ends with it. What is a live supervisor's is left alone.
func ClearRemains(sb *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), clearPatience)
	defer cancel()
	return unlessHeld(sb, func(lock *sandbox.Lock) error { return clearRemains(ctx, sb, lock) })
}

// unlessHeld calls do while nobody else can hold the sandbox. It does nothing
// if somebody does, or if the sandbox is gone.
func unlessHeld(sb *sandbox.Sandbox, do func(*sandbox.Lock) error) error {
	lock, err := sb.TryLock(sandbox.PurposeClear)
	if held := (*sandbox.HeldError)(nil); errors.As(err, &held) || fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Release()
	return do(lock)
}

// clearRemains is ClearRemains while the sandbox is held.
func clearRemains(ctx context.Context, sb *sandbox.Sandbox, lock *sandbox.Lock) error {
	r := sb.Record()
	if err := endLeft(ctx, sb, lock); err != nil {
		return err
	}
	if r.Runtime == sandbox.RuntimeDocker {
		return errors.Join(clearMounts(sb.Dir()), docker.New(docker.Options{}).Clear(ctx, string(r.ID), sb.Dir()))
	}
	if groupLimits(r).IsZero() {
		return nil
	}
	host, err := cgroup.Detect()
	if err != nil || !host.Usable() {
		return err
	}
	// Making a group anew kills and removes a dead owner's.
	g, err := host.Create(string(r.ID), cgroup.Limits{})
	if fault.Is(err, fault.Exists) {
		return nil
	}
	if err != nil {
		return err
	}
	return g.Delete()
}

// endLeft ends the processes that a killed supervisor has left, if one was.
// Containers are docker's to end.
func endLeft(ctx context.Context, sb *sandbox.Sandbox, lock *sandbox.Lock) error {
	if !sb.Supervised() {
		return nil
	}
	if r := sb.Record(); r.Runtime != sandbox.RuntimeDocker {
		if err := bwrap.EndLeft(ctx, string(r.ID), r.HostUID); err != nil {
			return err
		}
	}
	return lock.SetSupervised(false)
}

// clearPatience bounds the wait for the docker daemon.
const clearPatience = 20 * time.Second

// clearMounts unmounts what is mounted for docker in a sandbox's directory.
func clearMounts(dir string) error {
	for _, name := range []string{viewDir, terminalsDir} {
		for {
			err := unix.Unmount(filepath.Join(dir, name), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is
				break
			}
			if err != nil {
				return fault.New(fault.Internal, "unmount %s: %w", name, err)
			}
		}
	}
	return nil
}

// clearRemainsOf is ClearRemains by name.
func clearRemainsOf(home, name string) error {
	h, err := sandbox.OpenHomeAt(home)
	if err != nil {
		return err
	}
	sb, err := h.Open(name)
	if err != nil {
		return err
	}
	return ClearRemains(sb)
}

// groupLimits are those of a sandbox's limits that a cgroup enforces.
func groupLimits(r sandbox.Record) cgroup.Limits {
	return cgroup.Limits{MemoryBytes: r.Limits.MemoryBytes, CPUs: r.Limits.CPUs, CPUShares: r.Limits.CPUShares, PIDs: r.Limits.PIDs}
}

// afterDeath waits for a supervisor and clears up after one that was killed.
func (l *Lease) afterDeath() error {
	state, err := l.process.Wait()
	if err != nil || state.Success() {
		return err
	}
	return errors.Join(fault.New(fault.Unavailable, "supervisor: ended by %s", state), clearRemainsOf(l.home, l.name))
}
