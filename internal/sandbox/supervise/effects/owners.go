// Package effects attributes what happens in a sandbox to commands: whose a process is, what
// a command changed, net, and what it was refused. Whoever uses it says which commands there
// are, and reports the changes and refusals.
//
// Locks: Owners.mu is held while a shell is asked for its command. ChangeSet.mu and
// DenialSet.mu are taken last.
package effects

import (
	"sync"
)

// maxKnown bounds the table of processes whose owner is known.
const maxKnown = 4096

// maxAncestry bounds how far a process's parents are followed: deeper than
// any real tree, and a limit where a hostile one races with us.
const maxAncestry = 512

// Owners finds the command that a process belongs to, by its ancestors:
// each command runs below a leader of its own that is a subreaper, so not even
// a double fork leaves it. Below the leader of a session's shell it is the
// command that runs, unless the process is older than that. What a command has
// left behind belongs to none, and never will. C's zero value is no command; so is
// the zero value of Owners one of no commands.
type Owners[C comparable] struct {
	mu     sync.Mutex
	leader map[int]led[C]   // by the leader's host pid
	known  map[int]owned[C] // by host pid: processes found below a leader or nowhere, and their ancestors
}

// led is what a leader leads.
type led[C comparable] struct {
	command C
	shell   func([]Process) C // of a session's shell; else nil
	over    bool              // it has ended; processes of it may be left
}

// owned says whose a process is, as long as its pid is not another's.
type owned[C comparable] struct {
	command C // zero: nobody's
	started uint32
}

// Add notes that the process leader leads a command.
func (o *Owners[C]) Add(leader int, c C) { o.add(leader, led[C]{command: c}) }

// AddShell notes that the process leader leads c, the shell of a session. current says
// to which command a process below belongs: it gets that and its ancestors, the youngest
// first.
func (o *Owners[C]) AddShell(leader int, c C, current func(line []Process) C) {
	o.add(leader, led[C]{command: c, shell: current})
}

func (o *Owners[C]) add(leader int, l led[C]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leader == nil {
		o.leader, o.known = map[int]led[C]{}, map[int]owned[C]{}
	}
	o.leader[leader] = l
}

// End says that a command has ended. Its leaders may lead others by now: it has several if it
// started inner sandboxes.
func (o *Owners[C]) End(c C) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for leader, l := range o.leader {
		if l.command == c {
			l.over = true
			o.leader[leader] = l
		}
	}
	o.forgetLocked(c)
}

// Remove drops a command of which no process is left.
func (o *Owners[C]) Remove(leader int, c C) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.leader[leader].command == c {
		delete(o.leader, leader)
	}
}

func (o *Owners[C]) forgetLocked(c C) {
	for p, of := range o.known {
		if of.command == c {
			delete(o.known, p)
		}
	}
}

// Find returns the command of the process pid, or none. With no command, or one
// running, no session, and nothing left of another, there is nothing to look up.
func (o *Owners[C]) Find(pid int) (command C) {
	var none C
	o.mu.Lock()
	defer o.mu.Unlock()
	switch len(o.leader) {
	case 0:
		return none
	case 1:
		for _, l := range o.leader {
			if l.shell == nil && !l.over {
				return l.command
			}
		}
	}
	// A running command's pid is not looked at again: that would cost each change.
	if of := o.known[pid]; of.command != none {
		return of.command
	}
	for range maxSearches {
		if l, broken := o.followLocked(pid); !broken {
			return o.ownerLocked(l)
		}
	}
	return none
}

// maxSearches bounds how often a line of parents is followed anew because one of
// them ended meanwhile: its children are the leader's then.
const maxSearches = 10

// line is a process and its ancestors, the youngest first, below a leader or
// one whose owner is known.
type line[C comparable] struct {
	members []Process
	leader  led[C]
	owned   *owned[C] // else nil
}

// followLocked returns the line of pid. It is broken where an ancestor has ended
// meanwhile.
func (o *Owners[C]) followLocked(pid int) (l line[C], broken bool) {
	for p := pid; p > 1 && len(l.members) < maxAncestry; {
		if of, is := o.leader[p]; is {
			l.leader = of
			break
		}
		m := ProcessOf(p)
		if m == (Process{}) {
			return line[C]{}, p != pid
		}
		if of, is := o.known[p]; is && of.started == m.Started {
			l.owned = &of
			break
		}
		l.members = append(l.members, m)
		p = m.Parent
	}
	return l, false
}

// ownerLocked returns whose the line is, and notes it of its members.
func (o *Owners[C]) ownerLocked(l line[C]) (command C) {
	var none C
	same := l.members // those who have the owner for as long as they live
	switch {
	case l.owned != nil:
		command = l.owned.command
	case len(l.members) == maxAncestry:
		same = same[:maxAncestry/2] // the older ones may be near enough to a leader
	case l.leader.command == none || l.leader.over:
	case l.leader.shell != nil:
		command = l.leader.shell(l.members)
		same = same[:max(0, len(same)-1)] // the oldest may be the shell, which runs all commands
	default:
		command = l.leader.command
	}
	if len(o.known)+len(same) > maxKnown {
		clear(o.known)
	}
	for _, m := range same {
		o.known[m.PID] = owned[C]{command, m.Started}
	}
	return command
}
