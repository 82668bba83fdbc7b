// Package host describes the machine on which the benchmarks run.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Processes are those of the machine by pid.
type Processes map[int]Process

// Process is one process.
type Process struct {
	Parent int
	CPU    time.Duration // used by it and by its children that it has waited for
	Env    string        // as in /proc/PID/environ, "" when not ours to read
}

// ReadProcesses reads /proc; what ends meanwhile is left out.
func ReadProcesses() (Processes, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := Processes{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		all[pid] = Process{Parent: parentOf(string(stat)), CPU: cpuOf(string(stat)), Env: "\x00" + string(env)}
	}
	return all, nil
}

// parentOf reads the fourth field of /proc/PID/stat (proc_pid_stat(5)).
func parentOf(stat string) int {
	fields := fieldsOf(stat)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// ticks are what processor time is counted in (USER_HZ, time(7)).
const ticks = time.Second / 100

// cpuOf adds utime, stime, cutime and cstime up.
func cpuOf(stat string) time.Duration {
	const first, last = 11, 14
	fields := fieldsOf(stat)
	if len(fields) <= last {
		return 0
	}
	var sum time.Duration
	for _, f := range fields[first : last+1] {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * ticks
	}
	return sum
}

// fieldsOf returns the fields of /proc/PID/stat from the third on. The second,
// the name, may hold spaces and parentheses.
func fieldsOf(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// ByEnv are the processes started with exactly this variable.
func (p Processes) ByEnv(variable string) []int {
	var pids []int
	for pid, proc := range p {
		if strings.Contains(proc.Env, "\x00"+variable+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// With adds all descendants.
func (p Processes) With(pids []int) PIDs {
	set := PIDs{}
	for _, pid := range pids {
		set[pid] = true
	}
	for grown := true; grown; {
		grown = false
		for pid, proc := range p {
			if set[proc.Parent] && !set[pid] {
				set[pid], grown = true, true
			}
		}
	}
	return set
}

// PIDs are some processes.
type PIDs map[int]bool

// Without leaves out the processes that run the program at path.
func (s PIDs) Without(path string) PIDs {
	own, err := os.Stat(path)
	if err != nil {
		return s
	}
	rest := PIDs{}
	for pid := range s {
		exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !os.SameFile(own, exe) {
			rest[pid] = true
		}
	}
	return rest
}

// CPU is the processor time that the processes in pids have used.
func (p Processes) CPU(pids PIDs) time.Duration {
	var sum time.Duration
	for pid := range pids {
		sum += p[pid].CPU
	}
	return sum
}

// PSS is the sum of the processes' proportional set sizes in bytes: a page
// shared by n processes counts 1/n in each.
func (s PIDs) PSS() (int64, error) {
	if len(s) == 0 {
		return 0, errors.New("no process found")
	}
	var sum int64
	for pid := range s {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n, err := pssOf(string(rollup))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		sum += n
	}
	return sum, nil
}

func pssOf(rollup string) (int64, error) {
	for line := range strings.Lines(rollup) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("smaps_rollup: no Pss")
}
