package supervise

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/agentfense/agentfense/internal/confine/cgroup"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/effects"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// stats looks what the sandbox uses: in its control group, and where it has none
// at its processes.
func (s *supervisor) stats() (api.Stats, error) {
	delta, err := s.stored()
	if err != nil {
		return api.Stats{}, err
	}
	st := api.Stats{DeltaBytes: delta.Bytes, DeltaInodes: delta.Inodes, ViewRequests: s.view.Stats()}
	st.Execs, st.Sessions = s.running()
	var load cgroup.Load
	if m := s.meter(); m != nil {
		used, err := m.Usage()
		if err != nil {
			return api.Stats{}, err
		}
		load = m.Load()
		st.CPU, st.MemoryPeakBytes = used.CPU, used.MemoryPeakBytes
		st.OOMKills, st.PIDsMaxHits = used.OOMKills, used.PIDsMaxHits
	}
	if load.MemoryBytes == 0 || load.PIDs == 0 || st.CPU == 0 {
		tree := treeBelow(s.process.PID())
		load.MemoryBytes, load.PIDs = cmp.Or(load.MemoryBytes, tree.memory), cmp.Or(load.PIDs, tree.threads)
		st.CPU = cmp.Or(st.CPU, tree.cpu)
	}
	st.MemoryBytes, st.PIDs = load.MemoryBytes, load.PIDs
	return st, nil
}

// stored is what the deltas and the kept home store together.
func (s *supervisor) stored() (layer.Usage, error) {
	all, err := s.stack.Measure()
	if err != nil || all.Quota.Bytes > 0 { // under which it counts all
		return all, err
	}
	var others []*layer.Stack
	if s.keptHome.stack != nil {
		others = append(others, s.keptHome.stack)
	}
	for _, m := range s.mounts {
		if m.writable {
			others = append(others, m.Stack)
		}
	}
	for _, other := range others {
		used, err := other.Measure()
		if err != nil {
			return all, err
		}
		all.Bytes += used.Bytes
		all.Inodes += used.Inodes
	}
	return all, nil
}

// diskEvents tells of what the limit of the disk refused since the command began, in the workspace
// and in all mounts.
func (s *supervisor) diskEvents(x *execution) (events []audit.Event) {
	now, limit := s.stack.Refused(), s.stack.Statfs().Quota
	if n := now.Bytes - x.refused.Bytes; n > 0 {
		events = append(events, audit.ResourceLimitExceeded{Exec: x.id, Resource: audit.ResourceDiskBytes, Limit: float64(limit.Bytes), Count: n})
	}
	if n := now.Inodes - x.refused.Inodes; n > 0 {
		events = append(events, audit.ResourceLimitExceeded{Exec: x.id, Resource: audit.ResourceDiskInodes, Limit: float64(limit.Inodes), Count: n})
	}
	return events
}

// meter is the sandbox's control group, nil if it has none. Docker makes one
// without limits too.
func (s *supervisor) meter() meter {
	if s.usage != nil || !s.docker() {
		return s.usage
	}
	if group, err := cgroup.Of(s.process.PID()); err == nil {
		return group
	}
	return nil
}

// running counts the commands and the sessions.
func (s *supervisor) running() (execs, sessions int) {
	s.mu.Lock()
	for x := range s.execs {
		if x.shellOf == nil {
			execs++
		}
	}
	s.mu.Unlock()
	for _, sess := range s.sessions.list() {
		sess.mu.Lock()
		if sess.closed.IsZero() {
			sessions++
		}
		if sess.current != nil {
			execs++
		}
		sess.mu.Unlock()
	}
	return execs, sessions
}

// tree is what a process and its descendants use.
type tree struct {
	memory, threads int64
	cpu             time.Duration
}

// treeBelow looks at the process pid and all below it. Ended ones count in the
// times of whoever waited for them.
func treeBelow(pid int) tree {
	const parent, utime, cstime, threads = 1, 11, 14, 17 // from the state on, proc_pid_stat(5)
	children, stats := map[int][]int{}, map[int][][]byte{}
	dirs, _ := filepath.Glob("/proc/[0-9]*") // the pattern is well-formed
	for _, dir := range dirs {
		p, _ := strconv.Atoi(filepath.Base(dir))
		if fields := effects.StatFields(p); len(fields) > threads {
			stats[p] = fields
			children[int(numberOf(fields[parent]))] = append(children[int(numberOf(fields[parent]))], p)
		}
	}
	var t tree
	for pending := []int{pid}; len(pending) > 0; {
		p := pending[len(pending)-1]
		pending = append(pending[:len(pending)-1], children[p]...)
		fields := stats[p]
		if fields == nil {
			continue
		}
		for _, ticks := range fields[utime : cstime+1] {
			t.cpu += time.Duration(numberOf(ticks)) * time.Second / userHz
		}
		t.threads += numberOf(fields[threads])
		t.memory += memoryOf(p)
	}
	return t
}

// memoryOf is a process's share of what it has in memory (proc_pid_smaps(5)),
// or all of that where this process may not know more.
func memoryOf(pid int) int64 {
	dir := "/proc/" + strconv.Itoa(pid)
	if data, err := os.ReadFile(dir + "/smaps_rollup"); err == nil {
		_, rest, _ := bytes.Cut(data, []byte("\nPss:"))
		if fields := bytes.Fields(rest); len(fields) > 0 {
			return numberOf(fields[0]) << 10
		}
	}
	data, err := os.ReadFile(dir + "/statm")
	if fields := bytes.Fields(data); err == nil && len(fields) > 1 {
		return numberOf(fields[1]) * int64(os.Getpagesize())
	}
	return 0
}

// numberOf reads a number of the kernel's.
func numberOf(text []byte) int64 {
	n, _ := strconv.ParseInt(string(text), 10, 64) // it writes nothing else there
	return n
}

// userHz is the unit of times in /proc/PID/stat, 1/100 s on every architecture
// that we build for (USER_HZ, asm-generic/param.h).
const userHz = 100
