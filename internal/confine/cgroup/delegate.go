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

// placeV2 finds the base in the v2 hierarchy. A group with processes delegates no
// controller (cgroup-v2.rst, "No Internal Process Constraint"). So this process's group can
// be the base only if its processes may be moved into a leaf. Otherwise root uses the
// hierarchy's root, which is exempt. A hierarchy without our controllers (hybrid) needs no
// delegation.
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
	case err == nil && h.mayDelegate(t.mount, own):
		t.base = own
	case h.kernel.uid == 0 && h.writable(t.mount) == nil && h.mayDelegate(t.mount, t.mount):
		t.base = t.mount
	case err == nil:
		t.base = own
		t.reason, t.fix = "this process's cgroup has other processes and is not delegated", h.fixDelegation()
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

// mayDelegate reports whether dir can delegate controllers without moving foreign
// processes: it has no processes, it was delegated, it is the root of our cgroup namespace,
// or it has only agentfense's processes (before systemd 251 an ordinary user's delegation
// leaves no mark).
func (h *Host) mayDelegate(mount, dir string) bool {
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
	return "the " + name + " controller is not delegated to this process's cgroup",
		"as root: systemctl edit user@.service, add [Service] Delegate=cpu memory pids, log in again"
}

// delegate enables the controllers for dir's subgroups. If processes in dir prevent that,
// it moves them into leaf; place has checked that it may.
func (k kernel) delegate(dir, leaf string, controllers []string) error {
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
	// A process that was forked while its parent was moved stays: try again.
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
			time.Sleep(time.Millisecond) // a process is exiting
		}
	}
	return errdefs.New(errdefs.Unavailable, "cgroup %s: its processes fork faster than they can be moved", groupName(dir))
}

// emptyInto moves the processes of dir into its subgroup leaf and returns their number.
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

// groupName returns dir without the host's mount point, for messages.
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
