package cgroup

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Foreign is a group that somebody else has made, limits and removes.
type Foreign struct{ group Group }

// Of returns the group that process pid is in. Errors: Unsupported, where it is
// in none that is mounted here.
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
			continue // with v1 beside it, v2 has nothing to tell
		}
		p.dir = dir
		f.group.places = append(f.group.places, p)
	}
	if len(f.group.places) == 0 {
		return nil, errdefs.New(errdefs.Unsupported, "cgroup of process %d: not in what is mounted", pid)
	}
	return f, nil
}

// Load reads what the group uses now.
func (f *Foreign) Load() Load { return f.group.Load() }

// Usage reads what the group has used. Errors: NotFound once it is removed.
func (f *Foreign) Usage() (Usage, error) { return f.group.Usage() }
