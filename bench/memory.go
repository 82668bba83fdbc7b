package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settle is how long a place may calm down before its memory is read.
const settle = time.Second

// processes are those of the machine by pid.
type processes map[int]process

type process struct {
	Parent int
	Env    string // as in /proc/PID/environ, "" when not ours to read
}

// readProcesses reads /proc; what ends meanwhile is left out.
func readProcesses() (processes, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := processes{}
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
		all[pid] = process{Parent: parentOf(string(stat)), Env: "\x00" + string(env)}
	}
	return all, nil
}

// parentOf reads the fourth field of /proc/PID/stat (proc_pid_stat(5)); the
// second, the name, may hold spaces and parentheses.
func parentOf(stat string) int {
	_, rest, _ := strings.Cut(stat[strings.LastIndexByte(stat, ')')+1:], " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// ByEnv are the processes started with exactly this variable.
func (p processes) ByEnv(variable string) []int {
	var pids []int
	for pid, proc := range p {
		if strings.Contains(proc.Env, "\x00"+variable+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// With adds all descendants.
func (p processes) With(pids []int) pidSet {
	set := pidSet{}
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

type pidSet map[int]bool

// Without leaves out the processes that run the program at path.
func (s pidSet) Without(path string) pidSet {
	own, err := os.Stat(path)
	if err != nil {
		return s
	}
	rest := pidSet{}
	for pid := range s {
		exe, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !os.SameFile(own, exe) {
			rest[pid] = true
		}
	}
	return rest
}

// PSS is the sum of the processes' proportional set sizes in bytes: a page
// shared by n processes counts 1/n in each.
func (s pidSet) PSS() (int64, error) {
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

// sessionMemory is the PSS of what a session's place runs beside this program.
func sessionMemory(ctx context.Context, self string, open func() (*session, error), walked bool) (used int64, err error) {
	s, err := open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if walked {
		if _, err := s.Do(ctx, request{Work: "walk-all", Cold: true}); err != nil {
			return 0, err
		}
	}
	time.Sleep(settle)
	procs, err := readProcesses()
	if err != nil {
		return 0, err
	}
	return procs.With([]int{s.cmd.Process.Pid}).Without(self).PSS()
}

func measureIdle(ctx context.Context, p place) (float64, error) { return measureMemory(ctx, p, false) }

func measureWalked(ctx context.Context, p place) (float64, error) { return measureMemory(ctx, p, true) }

func measureMemory(ctx context.Context, p place, walked bool) (float64, error) {
	m, ok := p.(meter)
	if !ok {
		return 0, errNotComparable
	}
	n, err := m.Memory(ctx, walked)
	return float64(n), err
}
