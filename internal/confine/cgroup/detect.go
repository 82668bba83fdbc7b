package cgroup

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Controller says whether this host can enforce the limits of one controller.
type Controller struct {
	Name    string // memory, cpu or pids
	Version int    // of the hierarchy that has it: 1 or 2; 0 if no hierarchy has it
	Reason  string // why it cannot be used; empty if it can
	Fix     string // how to fix Reason
}

// Host is the result of Detect. It is valid until hierarchies are mounted or delegated
// anew.
type Host struct {
	Controllers []Controller // memory, cpu, pids, in this order

	hierarchies []hierarchy
	kernel      kernel
}

// hierarchy is a mounted tree of groups, with the place for ours in it.
type hierarchy struct {
	version     int
	mount       string
	base        string   // our groups are made below it; empty: none can be made, see reason
	controllers []string // those that groups below base can have
	reason, fix string   // why there is no base, or why it delegates nothing
}

// v1Names are the v1 controllers that we use. The last two do what v2 has built in.
var v1Names = []string{Memory, CPU, PIDs, "cpuacct", "freezer"}

// Detect examines the mounted hierarchies and the rights of this process to them. It
// changes nothing. Errors: Unsupported without /proc.
func Detect() (Host, error) { return detect("", realKernel()) }

// detect is Detect with all paths below root.
func detect(root string, k kernel) (Host, error) {
	own, err := groupsOf(root + "/proc/self/cgroup")
	if err != nil {
		return Host{}, errdefs.New(errdefs.Unsupported, "cgroup detect: %w", err)
	}
	mounts, err := findMounts(root)
	if err != nil {
		return Host{}, errdefs.New(errdefs.Unsupported, "cgroup detect: %w", err)
	}
	h := Host{kernel: k}
	for _, m := range mounts {
		h.hierarchies = append(h.hierarchies, h.place(m, own))
	}
	for _, name := range []string{Memory, CPU, PIDs} {
		h.Controllers = append(h.Controllers, h.controller(name))
	}
	return h, nil
}

// groupsOf reads a process's group in each hierarchy, by v1 controller name, ""
// for v2 (cgroups(7), /proc/pid/cgroup).
func groupsOf(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	own := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			own[name] = parts[2]
		}
	}
	return own, lines.Err()
}

// cgroupMount is a line of mountinfo.
type cgroupMount struct {
	hierarchy
	group string // the group that is the mount's root
}

// findMounts returns the mounted hierarchies, each once (proc(5), /proc/pid/mountinfo).
func findMounts(root string) ([]cgroupMount, error) {
	f, err := os.Open(root + "/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var mounts []cgroupMount
	seen := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m, ok := parseMount(root, lines.Text())
		if key := strings.Join(m.controllers, ","); ok && !seen[key] {
			seen[key] = true
			mounts = append(mounts, m)
		}
	}
	return mounts, lines.Err()
}

func parseMount(root, line string) (cgroupMount, bool) {
	place, kind, ok := strings.Cut(line, " - ")
	at, what := strings.Fields(place), strings.Fields(kind)
	if !ok || len(at) < 6 || len(what) < 3 {
		return cgroupMount{}, false
	}
	m := cgroupMount{group: unescapeMount(at[3])}
	m.mount = root + unescapeMount(at[4])
	switch what[0] {
	case "cgroup2":
		m.version = 2
		return m, true
	case "cgroup":
		m.version = 1
		for option := range strings.SplitSeq(what[2], ",") {
			if slices.Contains(v1Names, option) {
				m.controllers = append(m.controllers, option)
			}
		}
	}
	return m, len(m.controllers) > 0
}

var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// place decides where in a hierarchy our groups are made.
func (h *Host) place(m cgroupMount, own map[string]string) hierarchy {
	key := ""
	if m.version == 1 {
		key = m.controllers[0]
	}
	dir, ok := groupDir(m, own[key])
	if !ok {
		m.reason = "this process's cgroup is outside of the mounted cgroup tree"
		m.fix = "mount the cgroup file system of this cgroup namespace"
		return m.hierarchy
	}
	if m.version == 2 {
		h.placeV2(&m.hierarchy, dir)
		return m.hierarchy
	}
	if err := h.writable(dir); err != nil {
		m.reason, m.fix = h.explain(err, "run it as root, or on a host with cgroup v2 in a delegated group")
		return m.hierarchy
	}
	m.base = dir
	return m.hierarchy
}

// groupDir returns the directory of group.
func groupDir(m cgroupMount, group string) (string, bool) {
	rest, ok := strings.CutPrefix(group, strings.TrimSuffix(m.group, "/"))
	if group == "" || !ok || rest != "" && rest[0] != '/' || strings.HasPrefix(group, "/..") {
		return "", false
	}
	dir := filepath.Join(m.mount, rest)
	return dir, exists(dir, "cgroup.procs")
}

// writable returns the reason why no group can be made in dir and entered, or nil.
func (h *Host) writable(dir string) error {
	if err := h.kernel.access(dir); err != nil {
		return err
	}
	return h.kernel.access(filepath.Join(dir, "cgroup.procs"))
}

func (h *Host) explain(err error, fix string) (string, string) {
	switch {
	case errors.Is(err, unix.EROFS):
		return "the cgroup file system is mounted read-only", "mount it writable"
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return "this process may not write to its own cgroup", fix
	}
	return err.Error(), fix
}

func (h *Host) controller(name string) Controller {
	c := Controller{Name: name}
	for _, t := range h.hierarchies {
		if t.version != 1 || !slices.Contains(t.controllers, name) {
			continue
		}
		c.Version, c.Reason, c.Fix = 1, t.reason, t.fix
		return c
	}
	for _, t := range h.hierarchies {
		if t.version == 2 && slices.Contains(words(t.mount, "cgroup.controllers"), name) {
			c.Version = 2
			c.Reason, c.Fix = h.reasonV2(t, name)
			return c
		}
	}
	c.Reason = "no mounted hierarchy has the " + name + " controller"
	c.Fix = "mount cgroup2 on /sys/fs/cgroup"
	if len(h.hierarchies) > 0 && name == Memory {
		c.Fix = "boot with cgroup_enable=memory"
	} else if len(h.hierarchies) > 0 {
		c.Fix = "boot a kernel with this controller"
	}
	return c
}

// Usable reports whether groups can be made on this host at all: for killing and counting,
// if not for limits.
func (h Host) Usable() bool {
	return slices.ContainsFunc(h.hierarchies, func(t hierarchy) bool { return t.base != "" })
}

// DelegationHelps reports whether a controller for l is missing that a delegated v2 group
// could provide, because v1 does not have it.
func (h Host) DelegationHelps(l GroupLimits) bool {
	if !slices.ContainsFunc(h.hierarchies, func(t hierarchy) bool { return t.version == 2 }) {
		return false
	}
	return slices.ContainsFunc(h.Controllers, func(c Controller) bool {
		return c.Reason != "" && c.Version != 1 && slices.Contains(l.controllers(), c.Name)
	})
}

// Check reports whether all of l can be enforced. Errors: Invalid; Unsupported, with the
// reason and the fix for each missing controller.
func (h Host) Check(l GroupLimits) error {
	if err := l.check(); err != nil {
		return err
	}
	var wrong []string
	for _, c := range h.Controllers {
		if c.Reason != "" && slices.Contains(l.controllers(), c.Name) {
			wrong = append(wrong, c.Name+" cannot be limited: "+c.Reason+" (fix: "+c.Fix+")")
		}
	}
	if wrong != nil {
		return errdefs.New(errdefs.Unsupported, "cgroup: %s", strings.Join(wrong, "; "))
	}
	return nil
}
