package guest

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/pidfd"
)

// idleLeader is a leader that waits for another command.
type idleLeader struct {
	id     uint32
	link   link
	pid    int
	leader *os.File // pidfd
	timer  *time.Timer
}

const (
	// restFor is how long a leader rests.
	restFor = 5 * time.Second
	// wakePatience is how long one may take to wake.
	wakePatience = time.Second
)

// close ends the leader, if it is still there, and with it what it should not
// have left.
func (r *idleLeader) close() {
	r.timer.Stop()
	_ = pidfd.Kill(r.leader) // PID 1 tells of its end
	r.link.file.Close()
	r.leader.Close()
}

// release lets the leader rest, because nothing of the exec is left. It is
// done, and nothing that is asked of it from now on reaches the leader.
func (x *Exec) release() {
	x.mu.Lock()
	x.released = true
	x.mu.Unlock()
	x.conn.rest(&idleLeader{id: x.id, link: x.link, pid: x.pid, leader: x.leader})
	close(x.done)
}

// rest keeps a leader for the next command; one is enough.
func (c *Conn) rest(r *idleLeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, r.id)
	r.timer = time.AfterFunc(restFor, func() { c.dismiss(r) })
	if c.err == nil && c.resting == nil {
		c.resting = r
		return
	}
	c.leaving[r.id] = struct{}{}
	r.close()
}

// dismiss ends a leader that has rested long enough.
func (c *Conn) dismiss(r *idleLeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resting == r {
		c.resting = nil
		c.leaving[r.id] = struct{}{}
		r.close()
	}
}

// restedLocked takes note of the end of a leader that rested.
func (c *Conn) restedLocked(id uint32) error {
	if _, known := c.leaving[id]; known {
		delete(c.leaving, id)
		return nil
	}
	if c.resting != nil && c.resting.id == id {
		c.resting.close()
		c.resting = nil
		return nil
	}
	return errProtocol
}

func (c *Conn) isTakenLocked(id uint32) bool {
	_, leaves := c.leaving[id]
	return leaves || c.execs[id] != nil || c.resting != nil && c.resting.id == id
}

// wake has the leader that rests take the streams of a command. It is nil if
// there is none, or none that wakes.
func (c *Conn) wake(command Command) *Exec {
	passed, which, err := streams(command.Files)
	if err != nil {
		return nil // whoever goes on sees it
	}
	x := c.newExec(command)
	if !c.takeResting(x) {
		return nil
	}
	// Anything inside may have stopped it; a stop still on its way is taken back.
	err = pidfd.Signal(x.leader, unix.SIGCONT)
	if err == nil {
		x.link.file.SetReadDeadline(time.Now().Add(wakePatience))
		err = x.link.send(append(encode(msgWake), which), passed...)
	}
	if err == nil {
		err = x.meet()
	}
	if err != nil {
		x.Kill()
		x.close()
		return nil
	}
	x.link.file.SetReadDeadline(time.Time{})
	return x
}

// takeResting makes the leader that rests that of x.
func (c *Conn) takeResting(x *Exec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.resting
	if r == nil {
		return false
	}
	r.timer.Stop()
	c.resting = nil
	x.id, x.link, x.pid, x.leader = r.id, r.link, r.pid, r.leader
	c.execs[x.id] = x
	return true
}
