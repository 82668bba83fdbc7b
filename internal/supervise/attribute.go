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
// a double fork leaves it.
type attribution struct {
	mu     sync.Mutex
	leader map[int]*execution // by the leader's host pid
	member map[int]*execution // processes found below a leader
}

func (a *attribution) add(pid int, x *execution) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leader == nil {
		a.leader, a.member = map[int]*execution{}, map[int]*execution{}
	}
	a.leader[pid] = x
}

func (a *attribution) remove(pid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.leader[pid]
	delete(a.leader, pid)
	for p, of := range a.member {
		if of == x {
			delete(a.member, p)
		}
	}
}

// find returns the command of the process pid, or nil. With one command
// running there is nothing to look up.
func (a *attribution) find(pid int) *execution {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leader) == 1 {
		for _, x := range a.leader {
			return x
		}
	}
	if x := a.member[pid]; x != nil {
		return x
	}
	for p, depth := pid, 0; p > 1 && depth < maxAncestry; p, depth = parentOf(p), depth+1 {
		x := a.leader[p]
		if x == nil {
			continue
		}
		if len(a.member) >= maxAttributed {
			clear(a.member)
		}
		a.member[pid] = x
		return x
	}
	return nil
}

// parentOf reads a process's parent from /proc/PID/stat (proc(5)): the second
// field after the command's name, which may itself hold parentheses. 0 when
// the process has gone.
func parentOf(pid int) int {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return parent
}
