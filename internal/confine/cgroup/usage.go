package cgroup

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// counters are the events that not every kernel sums up along the tree.
type counters struct {
	oomKills, forks int64
}

// Usage reads what the group has used. Errors: NotFound after Delete.
func (g *Group) Usage() (Usage, error) {
	places := g.dirs()
	if len(places) == 0 || !exists(places[0].dir, "cgroup.procs") {
		return Usage{}, errdefs.New(errdefs.NotFound, "cgroup %s: no such group", g.name)
	}
	n := g.total()
	u := Usage{OOMKills: n.oomKills, PIDsMaxHits: n.forks}
	if g.parent != nil {
		u.PIDsMaxHits += g.parent.count().forks - g.before
	}
	if p := g.placeOf(Memory); p != nil && p.version == 2 {
		u.MemoryPeakBytes = number(p.dir, "memory.peak")
	} else if p != nil {
		u.MemoryPeakBytes = number(p.dir, "memory.max_usage_in_bytes")
	}
	for _, p := range places {
		switch {
		case p.version == 2:
			u.CPU = time.Duration(field(p.dir, "cpu.stat", "usage_usec")) * time.Microsecond
			u.User = time.Duration(field(p.dir, "cpu.stat", "user_usec")) * time.Microsecond
			u.System = time.Duration(field(p.dir, "cpu.stat", "system_usec")) * time.Microsecond
			return u, nil
		case p.has("cpuacct"):
			u.CPU = time.Duration(number(p.dir, "cpuacct.usage"))
			u.User = time.Duration(number(p.dir, "cpuacct.usage_user"))
			u.System = time.Duration(number(p.dir, "cpuacct.usage_sys"))
		}
	}
	return u, nil
}

// Load is the present use of the processes of a group. A value is zero if the host does not
// count it.
type Load struct {
	MemoryBytes int64
	PIDs        int64 // processes and threads
}

// Load reads the present use of the group, including its subs.
func (g *Group) Load() Load {
	var l Load
	if p := g.placeOf(Memory); p != nil && p.version == 2 {
		l.MemoryBytes = number(p.dir, "memory.current")
	} else if p != nil {
		l.MemoryBytes = number(p.dir, "memory.usage_in_bytes")
	}
	if p := g.placeOf(PIDs); p != nil {
		l.PIDs = number(p.dir, "pids.current")
	}
	return l
}

// total returns the counters of g and its subs. memory.events of v2 includes the subgroups;
// oom_control of v1 does not. The kernel counts a refused fork in the group of the process
// (v1, and v2 before 6.11) or in the group of the limit (since 6.11), never in both, so the
// sum is right on each.
func (g *Group) total() counters {
	n, hierarchical := g.count(), g.sumsMemory()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.subs {
		n = n.plus(s.count(), hierarchical)
	}
	return n.plus(g.retired, hierarchical)
}

func (n counters) plus(m counters, hierarchical bool) counters {
	n.forks += m.forks
	if !hierarchical {
		n.oomKills += m.oomKills
	}
	return n
}

func (g *Group) sumsMemory() bool {
	p := g.placeOf(Memory)
	return p != nil && p.version == 2
}

// count reads the files of g itself.
func (g *Group) count() counters {
	var n counters
	if p := g.placeOf(Memory); p != nil && p.version == 2 {
		n.oomKills = field(p.dir, "memory.events", "oom_kill")
	} else if p != nil {
		n.oomKills = field(p.dir, "memory.oom_control", "oom_kill")
	}
	if p := g.placeOf(PIDs); p != nil {
		n.forks = field(p.dir, "pids.events", "max")
	}
	return n
}
