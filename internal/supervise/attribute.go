package supervise

import (
	"bytes"
	"os"
	"strconv"
	"sync"
)

// maxAttributed bounds the table of processes known to belong to a command.
const maxAttributed = 4096

// maxAncestry bounds how far a process's parents are followed: deeper than
// any real tree, and a limit where a hostile one races with us.
const maxAncestry = 512

// attribution finds the command that a process belongs to, by its ancestors:
// each command runs below a leader of its own that is a subreaper, so not even
// a double fork leaves it. Below the leader of a session's shell it is the
// command that runs, unless the process is older than that. What a command has
// left behind belongs to none.
type attribution struct {
	mu     sync.Mutex
	leader map[int]led        // by the leader's host pid
	member map[int]*execution // processes found below a leader
}

// led is what a leader leads.
type led struct {
	x    *execution
	over bool // it has ended; processes of it may be left
}

func (a *attribution) add(pid int, x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader == nil {
		a.leader, a.member = map[int]led{}, map[int]*execution{}
	}
	a.leader[pid] = led{x: x}
}

// end says that a command has ended. Its leader may lead another by now.
func (a *attribution) end(pid int, x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader[pid].x == x {
		a.leader[pid] = led{x, true}
	}
	a.forgetLocked(x)
}

// remove drops a command of which no process is left.
func (a *attribution) remove(pid int, x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader[pid].x == x {
		delete(a.leader, pid)
	}
}

func (a *attribution) forgetLocked(x *execution) {
	for p, of := range a.member {
		if of == x {
			delete(a.member, p)
		}
	}
}

// find returns the command of the process pid, or nil. With one command
// running, no session, and nothing left of another, there is nothing to look up.
func (a *attribution) find(pid int) *execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leader) == 1 {
		for _, l := range a.leader {
			if l.x.shellOf == nil && !l.over {
				return l.x
			}
		}
	}
	if x := a.member[pid]; x != nil {
		return x
	}
	x := a.searchLocked(pid)
	if x == nil {
		return nil
	}
	if len(a.member) >= maxAttributed {
		clear(a.member)
	}
	a.member[pid] = x
	return x
}

// maxSearches bounds how often a line of parents is followed anew because one of
// them ended meanwhile: its children are the leader's then.
const maxSearches = 10

// searchLocked follows the parents of pid up to a leader.
func (a *attribution) searchLocked(pid int) *execution {
	for range maxSearches {
		leader, line, broken := a.followLocked(pid)
		switch {
		case broken:
			continue
		case leader.x == nil || leader.over:
			return nil
		case leader.x.shellOf != nil:
			return leader.x.shellOf.commandOf(line)
		}
		return leader.x
	}
	return nil
}

// followLocked returns the leader of pid, and pid and its ancestors below, the
// youngest first. It is broken where an ancestor has ended meanwhile.
func (a *attribution) followLocked(pid int) (leader led, line []int, broken bool) {
	for p := pid; p > 1 && len(line) < maxAncestry; {
		if l, is := a.leader[p]; is {
			return l, line, false
		}
		line = append(line, p)
		of := processOf(p)
		if of == (process{}) {
			return led{}, nil, p != pid
		}
		p = of.parent
	}
	return led{}, nil, false
}

// process is what /proc/PID/stat tells (proc_pid_stat(5)).
type process struct {
	parent  int
	started uint32 // clock ticks after the system's start, modulo 2³²
}

// statOf returns the fields of /proc/PID/stat from the third, the state, on; none
// when the process has gone. They follow the command's name, which may itself
// hold parentheses.
func statOf(pid int) [][]byte {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
}

// processOf reads of a process; zero when it has gone.
func processOf(pid int) process {
	const parent, started = 1, 19 // state, ppid … starttime
	fields := statOf(pid)
	if len(fields) <= started {
		return process{}
	}
	ppid, parentErr := strconv.Atoi(string(fields[parent]))
	ticks, startErr := strconv.ParseUint(string(fields[started]), 10, 64)
	if parentErr != nil || startErr != nil {
		return process{}
	}
	return process{parent: ppid, started: uint32(ticks)}
}

// pidInside returns the number by which pid's own namespace knows it; 0 when it
// has gone. It is the last of NSpid in /proc/PID/status (proc_pid_status(5)).
func pidInside(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	numbers := bytes.Fields(line)
	if len(numbers) == 0 {
		return 0
	}
	number, err := strconv.Atoi(string(numbers[len(numbers)-1]))
	if err != nil {
		return 0
	}
	return number
}
