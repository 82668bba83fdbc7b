package supervise

import (
	"bytes"
	"os"
	"strconv"
	"sync"
)

// maxAttributed bounds the table of processes whose owner is known.
const maxAttributed = 4096

// maxAncestry bounds how far a process's parents are followed: deeper than
// any real tree, and a limit where a hostile one races with us.
const maxAncestry = 512

// attribution finds the command that a process belongs to, by its ancestors:
// each command runs below a leader of its own that is a subreaper, so not even
// a double fork leaves it. Below the leader of a session's shell it is the
// command that runs, unless the process is older than that. What a command has
// left behind belongs to none, and never will.
type attribution struct {
	mu     sync.Mutex
	leader map[int]led   // by the leader's host pid
	known  map[int]owned // by host pid: processes found below a leader or nowhere, and their ancestors
}

// led is what a leader leads.
type led struct {
	x    *execution
	over bool // it has ended; processes of it may be left
}

// owned says whose a process is, as long as its pid is not another's.
type owned struct {
	x       *execution // nil: nobody's
	started uint32
}

func (a *attribution) add(pid int, x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader == nil {
		a.leader, a.known = map[int]led{}, map[int]owned{}
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
	for p, of := range a.known {
		if of.x == x {
			delete(a.known, p)
		}
	}
}

// find returns the command of the process pid, or nil. With no command, or one
// running, no session, and nothing left of another, there is nothing to look up.
func (a *attribution) find(pid int) *execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch len(a.leader) {
	case 0:
		return nil
	case 1:
		for _, l := range a.leader {
			if l.x.shellOf == nil && !l.over {
				return l.x
			}
		}
	}
	// A running command's pid is not looked at again: that would cost each change.
	if of := a.known[pid]; of.x != nil {
		return of.x
	}
	for range maxSearches {
		if l, broken := a.followLocked(pid); !broken {
			return a.ownerLocked(l)
		}
	}
	return nil
}

// maxSearches bounds how often a line of parents is followed anew because one of
// them ended meanwhile: its children are the leader's then.
const maxSearches = 10

// line is a process and its ancestors, the youngest first, below a leader or
// one whose owner is known.
type line struct {
	members []member
	leader  led
	owned   *owned // else nil
}

type member struct {
	pid int
	process
}

// followLocked returns the line of pid. It is broken where an ancestor has ended
// meanwhile.
func (a *attribution) followLocked(pid int) (l line, broken bool) {
	for p := pid; p > 1 && len(l.members) < maxAncestry; {
		if of, is := a.leader[p]; is {
			l.leader = of
			break
		}
		m := member{p, processOf(p)}
		if m.process == (process{}) {
			return line{}, p != pid
		}
		if of, is := a.known[p]; is && of.started == m.started {
			l.owned = &of
			break
		}
		l.members = append(l.members, m)
		p = m.parent
	}
	return l, false
}

// ownerLocked returns whose the line is, and notes it of its members.
func (a *attribution) ownerLocked(l line) (x *execution) {
	same := l.members // those who have the owner for as long as they live
	switch {
	case l.owned != nil:
		x = l.owned.x
	case len(l.members) == maxAncestry:
		same = same[:maxAncestry/2] // the older ones may be near enough to a leader
	case l.leader.x == nil || l.leader.over:
	case l.leader.x.shellOf != nil:
		x = l.leader.x.shellOf.commandOf(l.members)
		same = same[:max(0, len(same)-1)] // the oldest may be the shell, which runs all commands
	default:
		x = l.leader.x
	}
	if len(a.known)+len(same) > maxAttributed {
		clear(a.known)
	}
	for _, m := range same {
		a.known[m.pid] = owned{x, m.started}
	}
	return x
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
