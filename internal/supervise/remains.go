package supervise

import (
	"errors"

	"github.com/agentfense/agentfense/internal/cgroup"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
)

// ClearRemains removes what a killed supervisor of sb has left: its cgroup,
// with every process still in it. All else of a supervisor ends with it. A
// live supervisor's cgroup is left alone.
func ClearRemains(sb *sandbox.Sandbox) error {
	r := sb.Record()
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
	return cgroup.Limits{MemoryBytes: r.Limits.MemoryBytes, CPUs: r.Limits.CPUs, PIDs: r.Limits.PIDs}
}

// afterDeath waits for a supervisor and clears up after one that was killed.
func (l *Lease) afterDeath() error {
	state, err := l.process.Wait()
	if err != nil || state.Success() {
		return err
	}
	return errors.Join(fault.New(fault.Unavailable, "supervisor: ended by %s", state), clearRemainsOf(l.home, l.name))
}
