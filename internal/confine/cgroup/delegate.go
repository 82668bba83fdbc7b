package cgroup

import (
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// placeV2 finds the base in the v2 hierarchy. A group that has processes hands
// no controller down (cgroup-v2.rst, "No Internal Process Constraint"), so the
// own group serves only if its processes may be moved into a leaf of it; if
// not, root takes the hierarchy's root, which is exempt. A hierarchy without
// our controllers (hybrid) needs no handing down.
func (h *Host) placeV2(t *hierarchy, own string) {
	if filepath.Base(own) == selfName {
		own = filepath.Dir(own)
	}
	if len(ours(words(t.mount, "cgroup.controllers"))) == 0 {
		if err := h.writable(own); err != nil {
			t.reason, t.fix = h.explain(err, h.fixDelegation())
			return
		}
		t.base = own
		return
	}
	err := h.writable(own)
	if err == nil {
		err = h.kernel.access(filepath.Join(own, "cgroup.subtree_control"))
	}
	switch {
	case err == nil && h.mayHandDown(t.mount, own):
		t.base = own
	case h.kernel.uid == 0 && h.writable(t.mount) == nil && h.mayHandDown(t.mount, t.mount):
		t.base = t.mount
	case err == nil:
		t.base = own
		t.reason, t.fix = "the own group holds other processes and is not delegated", h.fixDelegation()
	default:
		t.reason, t.fix = h.explain(err, h.fixDelegation())
	}
	if t.base != "" && t.reason == "" {
		t.controllers = ours(words(t.base, "cgroup.controllers"))
	}
}

func ours(names []string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n != Memory && n != CPU && n != PIDs })
}

// mayHandDown reports whether dir can be made to hand controllers down without
// moving processes that are nobody's business of ours: it has none, it was
// delegated, it is the root of our cgroup namespace, or there are only
// agentfense's own (before systemd 251 an ordinary user's delegation leaves no mark).
func (h *Host) mayHandDown(mount, dir string) bool {
	if dir == mount || h.kernel.delegated(dir) {
		return true
	}
	pids, err := processes(dir)
	return err == nil && !slices.ContainsFunc(pids, func(pid int) bool { return !h.kernel.own(pid) })
}

func (h *Host) fixDelegation() string {
	if h.kernel.uid == 0 {
		return "systemd-run --scope -p Delegate=yes agentfense …"
	}
	return "systemd-run --user --scope -p Delegate=yes agentfense …"
}

func (h *Host) reasonV2(t hierarchy, name string) (reason, fix string) {
	if t.reason != "" || slices.Contains(t.controllers, name) {
		return t.reason, t.fix
	}
	return "the " + name + " controller is not delegated to the own group",
		"as root: systemctl edit user@.service, add [Service] Delegate=cpu memory pids, log in again"
}

// handDown makes dir's subgroups have the controllers. Processes in dir are
// moved into a leaf where that is what hinders; place has seen that they may be.
func (k kernel) handDown(dir, leaf string, controllers []string) error {
	var want []string
	have := words(dir, "cgroup.subtree_control")
	for _, name := range controllers {
		if !slices.Contains(have, name) {
			want = append(want, "+"+name)
		}
	}
	if len(want) == 0 {
		return nil
	}
	// A process forked while we move its parent stays behind: again.
	for range 100 {
		err := write(dir, "cgroup.subtree_control", strings.Join(want, " "))
		if !errors.Is(err, unix.EBUSY) {
			return failed(dir, "write cgroup.subtree_control", err)
		}
		moved, err := k.emptyInto(dir, leaf)
		if err != nil {
			return err
		}
		if moved == 0 {
			time.Sleep(time.Millisecond) // a process is on its way out
		}
	}
	return errdefs.New(errdefs.Unavailable, "cgroup %s: its processes fork faster than they can be moved", groupName(dir))
}

// emptyInto moves the processes of dir into its subgroup leaf and says how many
// there were.
func (k kernel) emptyInto(dir, leaf string) (int, error) {
	to := filepath.Join(dir, leaf)
	if err := k.mkdir(to); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, failed(dir, "make "+leaf, err)
	}
	pids, err := processes(dir)
	if err != nil {
		return 0, failed(dir, "read cgroup.procs", err)
	}
	for _, pid := range pids {
		if err := write(to, "cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, failed(dir, "move its processes", err)
		}
	}
	return len(pids), nil
}

// groupName is dir without the part that only this host has: what a message
// needs.
func groupName(dir string) string {
	if i := strings.LastIndex(dir, "/"+parentName+"/"); i >= 0 {
		return dir[i+1:]
	}
	return filepath.Base(dir)
}

// failed names the group and gives an errno its kind; nil for a nil err.
func failed(dir, operation string, err error) error {
	kind := errdefs.Internal
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		kind = errdefs.Denied
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ESRCH):
		kind = errdefs.NotFound
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EAGAIN):
		kind = errdefs.Unavailable
	case errors.Is(err, unix.ENOSPC):
		kind = errdefs.Exhausted
	case errors.Is(err, unix.EINVAL):
		kind = errdefs.Unsupported
	}
	return errdefs.New(kind, "cgroup %s: %s: %w", groupName(dir), operation, err)
}
