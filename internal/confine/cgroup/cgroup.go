// Package cgroup limits the memory, CPU time and number of processes of a sandbox, kills
// all of its processes at once, and reads what they used. It works on cgroup v2, on v1, and
// on hosts that mount both (hybrid). It chooses the version for each controller separately.
//
// The package does not decide which limits a sandbox has, and it starts no process. A Group may be
// used by several goroutines.
package cgroup

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The controllers a limit can ask for.
const (
	Memory = "memory"
	CPU    = "cpu"
	PIDs   = "pids"
)

const (
	parentName = "agentfense"      // holds the groups of all sandboxes
	initName   = "init"            // leaf for the processes given to Add
	selfName   = "agentfense-self" // leaf for the processes of a delegated base
)

// GroupLimits are what a group may use; a zero means no limit.
type GroupLimits struct {
	MemoryBytes int64   // memory and swap together
	CPUs        float64 // processors, at least 0.01
	CPUShares   int64   // weight against sibling groups, in the unit of v1: 2 to 262144
	PIDs        int64   // processes and threads
}

// IsZero reports whether l has no limit.
func (l GroupLimits) IsZero() bool { return l == GroupLimits{} }

// controllers returns the controllers that l needs.
func (l GroupLimits) controllers() []string {
	var need []string
	if l.MemoryBytes != 0 {
		need = append(need, Memory)
	}
	if l.CPUs != 0 || l.CPUShares != 0 {
		need = append(need, CPU)
	}
	if l.PIDs != 0 {
		need = append(need, PIDs)
	}
	return need
}

// The kernel's smallest quota is 1 ms in our period of 100 ms (min_cfs_quota_period,
// kernel/sched/core.c). The largest value of CPUs is our choice; a quota in microseconds is
// then far from an overflow.
const (
	minCPUs = 0.01
	maxCPUs = 1 << 20
)

// The kernel's smallest and largest cpu.shares (MIN_SHARES and MAX_SHARES,
// kernel/sched/sched.h).
const (
	minShares = 2
	maxShares = 1 << 18
)

func (l GroupLimits) check() error {
	switch {
	case l.MemoryBytes < 0:
		return errdefs.New(errdefs.Invalid, "memory limit %d: below zero", l.MemoryBytes)
	case l.PIDs < 0:
		return errdefs.New(errdefs.Invalid, "process limit %d: below zero", l.PIDs)
	case l.CPUShares != 0 && (l.CPUShares < minShares || l.CPUShares > maxShares):
		return errdefs.New(errdefs.Invalid, "cpu shares %d: not between %d and %d", l.CPUShares, minShares, maxShares)
	case math.IsNaN(l.CPUs) || l.CPUs != 0 && (l.CPUs < minCPUs || l.CPUs > maxCPUs):
		return errdefs.New(errdefs.Invalid, "cpu limit %g: not between %g and %d", l.CPUs, minCPUs, maxCPUs)
	}
	return nil
}

// Usage is what the processes of a group have used so far, including those that ended. A
// value is also zero if the host does not count it.
type Usage struct {
	CPU, User, System time.Duration
	MemoryPeakBytes   int64 // v2: since kernel 5.19, and where the memory controller is on
	OOMKills          int64 // processes killed for lack of memory
	PIDsMaxHits       int64 // refused forks; for a Sub this includes refusals by the group's limit of other forks during its life
}

// nameForm allows no dot, so that no name equals that of a controller's file. It has no
// bounded repetition, which would take a millisecond and 120 kB to compile in every process
// of a sandbox.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]*$`)

const maxNameBytes = 128

// reservedNames are the kernel's files without a dot (v1), and our leaf.
var reservedNames = []string{"tasks", "notify_on_release", "release_agent", initName}

func checkName(name string) error {
	if len(name) > maxNameBytes || !nameForm.MatchString(name) || slices.Contains(reservedNames, strings.ToLower(name)) {
		return errdefs.New(errdefs.Invalid, "cgroup name %q: not allowed", name)
	}
	return nil
}
