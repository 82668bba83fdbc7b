package cgroup

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Foreign is a group that another program makes, limits and removes.
type Foreign struct{ group Group }

// Of returns the group of process pid. Errors: Unsupported, if its group is not in a
// mounted hierarchy.
func Of(pid int) (*Foreign, error) { return of("", pid) }

// of is Of with all paths below root.
func of(root string, pid int) (*Foreign, error) {
	groups, err := groupsOf(fmt.Sprintf("%s/proc/%d/cgroup", root, pid))
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "cgroup of process %d: %w", pid, err)
	}
	mounts, err := findMounts(root)
	if err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "cgroup of process %d: %w", pid, err)
	}
	f := &Foreign{Group{name: fmt.Sprintf("of process %d", pid)}}
	for _, m := range mounts {
		p := place{version: m.version, controllers: []string{Memory, CPU, PIDs}}
		key := ""
		if m.version == 1 {
			key, p.controllers = m.controllers[0], m.controllers
		}
		dir, ok := groupDir(m, groups[key])
		if !ok || m.version == 2 && !exists(dir, "memory.events") && len(f.group.places) > 0 {
			continue // on a hybrid host v2 counts nothing
		}
		p.dir = dir
		f.group.places = append(f.group.places, p)
	}
	if len(f.group.places) == 0 {
		return nil, errdefs.New(errdefs.Unsupported, "cgroup of process %d: not in a mounted hierarchy", pid)
	}
	return f, nil
}

// Load reads the present use of the group.
func (f *Foreign) Load() Load { return f.group.Load() }

// Usage reads what the group has used. Errors: NotFound after its removal.
func (f *Foreign) Usage() (Usage, error) { return f.group.Usage() }
