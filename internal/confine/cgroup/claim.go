package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// claimTimeout is how long Create waits for the lock of a name, which a sweeper or a dying
// owner may hold for a moment.
const claimTimeout = time.Second

// claim makes the group name in t and locks it. The lock tells other processes that the
// owner lives: the kernel releases it when this process ends.
func (h Host) claim(t hierarchy, name string, l GroupLimits) (place, int, error) {
	p := place{version: t.version, controllers: t.controllers}
	if t.version == 2 {
		p.controllers = t.wanted(l)
	}
	parent := filepath.Join(t.base, parentName)
	p.dir = filepath.Join(parent, name)
	for deadline := time.Now().Add(claimTimeout); ; time.Sleep(time.Millisecond) {
		lock, err := h.tryClaim(t, parent, p)
		busy := errors.Is(err, unix.EWOULDBLOCK)
		raced := errors.Is(err, unix.ENOENT) // the last group's owner removed the parent
		switch {
		case !busy && !raced:
			return p, lock, err
		case time.Now().Before(deadline):
		case busy:
			return p, -1, errdefs.New(errdefs.Exists, "cgroup %s: in use by a live process", name)
		default:
			return p, -1, err
		}
	}
}

// wanted returns the controllers for groups in a v2 hierarchy. With a limit these are all
// available ones. Without, these are the ones that the base already delegates, so that an
// unlimited sandbox does not change its parents.
func (t hierarchy) wanted(l GroupLimits) []string {
	if t.serves(l) {
		return t.controllers
	}
	on := words(t.base, "cgroup.subtree_control")
	return slices.DeleteFunc(slices.Clone(t.controllers), func(c string) bool { return !slices.Contains(on, c) })
}

func (h Host) tryClaim(t hierarchy, parent string, p place) (int, error) {
	if t.version == 2 {
		if err := h.kernel.delegate(t.base, selfName, p.controllers); err != nil {
			return -1, err
		}
	}
	if err := h.kernel.mkdir(parent); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, failed(parent, "make", err)
	}
	if err := h.prepare(parent, p); err != nil {
		return -1, err
	}
	err := h.kernel.mkdir(p.dir)
	stale := errors.Is(err, unix.EEXIST)
	if err != nil && !stale {
		return -1, failed(p.dir, "make", err)
	}
	lock, err := lockDir(p.dir)
	if err != nil || !stale {
		return lock, failed(p.dir, "lock", err)
	}
	defer unix.Close(lock)
	if err := h.kernel.killAll(p.dir); err != nil {
		return -1, err
	}
	if err := h.kernel.remove(p.dir); err != nil {
		return -1, err
	}
	return -1, unix.ENOENT
}

// prepare makes groups below parent count into it and have the controllers.
func (h Host) prepare(parent string, p place) error {
	if p.version == 2 {
		return h.kernel.delegate(parent, selfName, p.controllers)
	}
	// Always 1 since kernel 5.11.
	if mode, _ := read(parent, "memory.use_hierarchy"); mode == "0" {
		return failed(parent, "write memory.use_hierarchy", write(parent, "memory.use_hierarchy", "1"))
	}
	return nil
}

// lockDir locks a group's directory. Errors: EWOULDBLOCK if it is locked, ENOENT if it was
// removed.
func lockDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		return -1, err
	}
	var locked, named unix.Stat_t
	if unix.Fstat(fd, &locked) != nil || unix.Stat(dir, &named) != nil || locked.Ino != named.Ino {
		unix.Close(fd)
		return -1, unix.ENOENT
	}
	return fd, nil
}
