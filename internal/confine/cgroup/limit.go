package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// period is the kernel's default for cpu.max and cpu.cfs_period_us.
const period = 100 * time.Millisecond

// setting is a control file and its value.
type setting struct {
	file, value string
	optional    bool // the file exists only where the kernel accounts swap
}

func (g *Group) limit(l GroupLimits) error {
	for _, controller := range l.controllers() {
		p := g.placeOf(controller)
		if p == nil {
			return errdefs.New(errdefs.Internal, "cgroup %s: no directory for %s", g.name, controller)
		}
		for _, s := range settings(controller, p.version, l) {
			err := write(p.dir, s.file, s.value)
			if s.optional && errors.Is(err, os.ErrNotExist) {
				continue
			}
			if controller == CPU && errors.Is(err, unix.EINVAL) {
				return errdefs.New(errdefs.Unsupported, "cgroup %s: write %s: %w: a parent group allows less", g.name, s.file, err)
			}
			if err != nil {
				return failed(p.dir, "write "+s.file, err)
			}
		}
	}
	return nil
}

// settings returns the control files for the limits of a controller (cgroup-v2.rst;
// cgroup-v1/memory.rst, sched-bwc.rst, pids.rst). Memory is limited together with swap.
// Otherwise a sandbox could fill the host's swap beyond its memory limit.
func settings(controller string, version int, l GroupLimits) []setting {
	memory, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.FormatInt(l.PIDs, 10)
	switch {
	case controller == Memory && version == 2:
		return []setting{{file: "memory.max", value: memory}, {file: "memory.swap.max", value: "0", optional: true}}
	case controller == Memory:
		// In this order: the kernel refuses a memory+swap limit below the memory limit.
		return []setting{{file: "memory.limit_in_bytes", value: memory}, {file: "memory.memsw.limit_in_bytes", value: memory, optional: true}}
	case controller == PIDs:
		return []setting{{file: "pids.max", value: pids}}
	}
	return processorSettings(version, l)
}

// processorSettings returns the settings of the cpu controller.
func processorSettings(version int, l GroupLimits) []setting {
	quota := int64(l.CPUs * float64(period.Microseconds()))
	var list []setting
	switch {
	case quota == 0:
	case version == 2:
		list = append(list, setting{file: "cpu.max", value: fmt.Sprintf("%d %d", quota, period.Microseconds())})
	default:
		list = append(list,
			setting{file: "cpu.cfs_period_us", value: strconv.FormatInt(period.Microseconds(), 10)},
			setting{file: "cpu.cfs_quota_us", value: strconv.FormatInt(quota, 10)})
	}
	switch {
	case l.CPUShares == 0:
	case version == 2:
		list = append(list, setting{file: "cpu.weight", value: strconv.FormatInt(weightOf(l.CPUShares), 10)})
	default:
		list = append(list, setting{file: "cpu.shares", value: strconv.FormatInt(l.CPUShares, 10)})
	}
	return list
}

// weightOf converts shares to a cpu.weight, 1 to 10000. It maps minimum, default (1024 to
// 100) and maximum onto each other, as runc does since 1.3.2 (opencontainers/cgroups,
// ConvertCPUSharesToCgroupV2Value).
func weightOf(shares int64) int64 {
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// placeOf returns the place with a controller, or nil if the group has none.
func (g *Group) placeOf(controller string) *place {
	for _, p := range g.dirs() {
		if p.has(controller) {
			return &p
		}
	}
	return nil
}
