package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Group is a sandbox's group, or a Sub of one. Lock order: settling, then mu, then a Sub's mu.
//
// It is the directory agentfense/NAME below a base, in every usable hierarchy. The base is
// the group of this process, so that limits of its parents apply. For root, the base is the
// root of a v2 hierarchy if the group of the process cannot delegate controllers. NAME has
// a leaf "init" for the processes of Add, and a leaf for each Sub. NAME itself has
// processes only at first, while a sandbox makes its namespaces.
//
// The owner holds a lock on NAME as long as it lives. A group without that lock has no
// owner: Create replaces it and Sweep removes it, and both kill its processes. Removing the
// last group below "agentfense" removes that parent too.
type Group struct {
	name   string
	kernel kernel
	parent *Group // nil for a sandbox's group

	settling sync.Mutex
	init     *Group // the leaf, once settled; nil for a Sub

	mu      sync.Mutex
	places  []place // none once it is deleted
	locks   []int   // open directories; nil for a Sub
	subs    map[string]*Group
	retired counters // sums of deleted subs
	before  int64    // the parent's refused forks when this Sub was made
}

// place is a group's directory in one hierarchy.
type place struct {
	version     int
	dir         string
	controllers []string
}

// dirs returns where g is. A reader may find that these are gone meanwhile.
func (g *Group) dirs() []place {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.places
}

func (p place) has(controller string) bool { return slices.Contains(p.controllers, controller) }

// Create makes the group name with limits l, and owns it until Delete. If a dead owner left
// a group of that name, Create kills its processes and replaces it. name is letters,
// digits, "-" and "_". Errors: Invalid; Unsupported as from Check, or when no group can be
// made at all; Exists if a live process owns the name; Denied.
func (h Host) Create(name string, l GroupLimits) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := h.Check(l); err != nil {
		return nil, err
	}
	if !h.Usable() {
		return nil, h.unusable()
	}
	g := &Group{name: name, kernel: h.kernel, subs: map[string]*Group{}}
	if err := h.fill(g, l); err != nil {
		_ = g.Delete()
		return nil, err
	}
	return g, nil
}

func (h Host) unusable() error {
	for _, t := range h.hierarchies {
		return errdefs.New(errdefs.Unsupported, "cgroup: no group can be made: %s (fix: %s)", t.reason, t.fix)
	}
	return errdefs.New(errdefs.Unsupported, "cgroup: no group can be made: no hierarchy is mounted (fix: mount cgroup2 on /sys/fs/cgroup)")
}

// fill makes g's directories and its limits.
func (h Host) fill(g *Group, l GroupLimits) error {
	for _, t := range h.hierarchies {
		if t.base == "" {
			continue
		}
		p, lock, err := h.claim(t, g.name, l)
		if err != nil {
			return err
		}
		g.places = append(g.places, p)
		g.locks = append(g.locks, lock)
	}
	return g.limit(l)
}

// serves reports whether a limit of l is enforced in t.
func (t hierarchy) serves(l GroupLimits) bool {
	return slices.ContainsFunc(l.controllers(), func(c string) bool { return slices.Contains(t.controllers, c) })
}

// Enter moves process pid into the sandbox's group itself, not into a leaf. A cgroup
// namespace that the process then makes has the group as root, so that /proc/PID/cgroup
// inside shows no host path. Errors: as Add; Precondition after Settle.
func (g *Group) Enter(pid int) error {
	g.settling.Lock()
	defer g.settling.Unlock()
	if g.init != nil || g.parent != nil {
		return errdefs.New(errdefs.Precondition, "cgroup %s: is settled already", g.name)
	}
	return g.add(pid)
}

// Settle moves the processes of Enter into the leaf "init", because a v2 group with
// processes has no controllers for its leaves. Add and Sub call it. Errors: Denied,
// Exhausted, Unavailable.
func (g *Group) Settle() error {
	g.settling.Lock()
	defer g.settling.Unlock()
	if g.init != nil || g.parent != nil {
		return nil
	}
	leaf, err := g.sub(initName)
	if err != nil {
		return err
	}
	for _, p := range g.dirs() {
		if _, err := g.kernel.emptyInto(p.dir, initName); err != nil {
			return err
		}
		if p.version != 2 {
			continue
		}
		// Not cpu: a sub needs no share, and its time is counted without the controller.
		count := slices.DeleteFunc(slices.Clone(p.controllers), func(c string) bool { return c == CPU })
		if err := g.kernel.delegate(p.dir, initName, count); err != nil {
			return err
		}
	}
	g.init = leaf
	return nil
}

// Add moves process pid, with all its threads, into the group; for a sandbox's group into
// its leaf. Its later children start there. Errors: Invalid, NotFound if there is no such
// process, Denied.
func (g *Group) Add(pid int) error {
	if err := g.Settle(); err != nil {
		return err
	}
	if g.init != nil {
		return g.init.add(pid)
	}
	return g.add(pid)
}

func (g *Group) add(pid int) error {
	if pid <= 0 {
		return errdefs.New(errdefs.Invalid, "cgroup %s: process %d: not a process id", g.name, pid)
	}
	for _, p := range g.dirs() {
		if err := write(p.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return failed(p.dir, "add process "+strconv.Itoa(pid), err)
		}
	}
	return nil
}

// Sub makes a group inside a sandbox's group. It has its own usage and can be killed
// separately, but has no limits. Errors: Invalid, Exists, Precondition inside a Sub,
// Exhausted if the host allows no more groups.
func (g *Group) Sub(name string) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if g.parent != nil {
		return nil, errdefs.New(errdefs.Precondition, "cgroup %s: a subgroup cannot have subgroups", g.name)
	}
	if err := g.Settle(); err != nil {
		return nil, err
	}
	return g.sub(name)
}

func (g *Group) sub(name string) (*Group, error) {
	s := &Group{name: g.name + "/" + name, kernel: g.kernel, parent: g}
	for _, p := range g.dirs() {
		dir := filepath.Join(p.dir, name)
		if err := g.kernel.mkdir(dir); err != nil {
			for _, made := range s.places {
				_ = g.kernel.rmdir(made.dir)
			}
			if errors.Is(err, unix.EEXIST) {
				return nil, errdefs.New(errdefs.Exists, "cgroup %s: exists", s.name)
			}
			return nil, failed(dir, "make", err)
		}
		s.places = append(s.places, place{version: p.version, dir: dir, controllers: p.controllers})
	}
	s.before = g.count().forks
	g.mu.Lock()
	defer g.mu.Unlock()
	g.subs[name] = s
	return s, nil
}

// Empty reports whether no process is left in the group and its subs. Zombies do not count.
func (g *Group) Empty() (bool, error) {
	for _, p := range g.dirs() {
		pids, err := allProcesses(p.dir)
		if err != nil || len(pids) > 0 {
			return false, failed(p.dir, "read cgroup.procs", err)
		}
	}
	return true, nil
}

// Delete removes the group, its subs, and the common parent if it was the last
// one. Deleting again does nothing. Errors: Precondition if it still has
// processes after a second; Kill it first.
func (g *Group) Delete() error {
	if g.parent != nil {
		return g.parent.deleteSub(g)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.places {
		if err := g.kernel.remove(p.dir); err != nil {
			return err
		}
	}
	for _, fd := range g.locks {
		unix.Close(fd)
	}
	for _, p := range g.places {
		// It fails while other sandboxes have groups there.
		_ = g.kernel.rmdir(filepath.Dir(p.dir))
	}
	g.locks, g.places = nil, nil
	return nil
}

// deleteSub removes s and adds its counts to retired. It does both with the lock, so that
// the sum over all subs never decreases.
func (g *Group) deleteSub(s *Group) error {
	hierarchical := g.sumsMemory()
	g.mu.Lock()
	defer g.mu.Unlock()
	last := s.count()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.places {
		if err := g.kernel.remove(p.dir); err != nil {
			return err
		}
	}
	g.retired = g.retired.plus(last, hierarchical)
	delete(g.subs, filepath.Base(s.name))
	s.places = nil
	return nil
}

// removeTimeout is how long a group may stay busy: a killed process leaves it shortly after
// cgroup.procs stops showing it.
const removeTimeout = time.Second

// remove deletes a group with its subgroups.
func (k kernel) remove(dir string) error {
	for deadline := time.Now().Add(removeTimeout); ; time.Sleep(time.Millisecond) {
		err := k.tryRemove(dir)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EBUSY):
			return failed(dir, "remove", err)
		case time.Now().After(deadline):
			return errdefs.New(errdefs.Precondition, "cgroup %s: still has processes: %w", groupName(dir), err)
		}
	}
}

// tryRemove succeeds if the group is gone already: the end of a command removes its Sub
// while the end of the sandbox removes everything.
func (k kernel) tryRemove(dir string) error {
	below, err := subgroups(dir)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, sub := range below {
		if err := k.tryRemove(sub); err != nil {
			return err
		}
	}
	if err := k.rmdir(dir); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
