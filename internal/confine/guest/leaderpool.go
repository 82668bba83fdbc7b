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
	// idleFor is how long a leader may be idle.
	idleFor = 5 * time.Second
	// wakeTimeout is how long a leader may take to accept a command.
	wakeTimeout = time.Second
)

// close kills the leader, if it still runs, and so any processes that it should not have.
func (r *idleLeader) close() {
	r.timer.Stop()
	_ = pidfd.Kill(r.leader) // PID 1 reports its end
	r.link.file.Close()
	r.leader.Close()
}

// release makes the leader idle, because no process of the exec is left. The exec is done,
// and later requests to it do not reach the leader.
func (x *Exec) release() {
	x.mu.Lock()
	x.released = true
	x.mu.Unlock()
	x.conn.keepIdle(&idleLeader{id: x.id, link: x.link, pid: x.pid, leader: x.leader})
	close(x.done)
}

// keepIdle keeps a leader for the next command, unless there is one already.
func (c *Conn) keepIdle(r *idleLeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, r.id)
	r.timer = time.AfterFunc(idleFor, func() { c.dismiss(r) })
	if c.err == nil && c.idle == nil {
		c.idle = r
		return
	}
	c.leaving[r.id] = struct{}{}
	r.close()
}

// dismiss ends a leader that was idle for idleFor.
func (c *Conn) dismiss(r *idleLeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle == r {
		c.idle = nil
		c.leaving[r.id] = struct{}{}
		r.close()
	}
}

// idleEndedLocked records the end of an idle leader.
func (c *Conn) idleEndedLocked(id uint32) error {
	if _, known := c.leaving[id]; known {
		delete(c.leaving, id)
		return nil
	}
	if c.idle != nil && c.idle.id == id {
		c.idle.close()
		c.idle = nil
		return nil
	}
	return errProtocol
}

func (c *Conn) isTakenLocked(id uint32) bool {
	_, leaves := c.leaving[id]
	return leaves || c.execs[id] != nil || c.idle != nil && c.idle.id == id
}

// wake passes the streams of a command to the idle leader. It returns nil if there is no
// idle leader, or if it does not respond.
func (c *Conn) wake(command Command) *Exec {
	passed, which, err := streams(command.Files)
	if err != nil {
		return nil // the caller reports the error
	}
	x := c.newExec(command)
	if !c.takeIdle(x) {
		return nil
	}
	// A process inside may have stopped it. SIGCONT also cancels a pending stop.
	err = pidfd.Signal(x.leader, unix.SIGCONT)
	if err == nil {
		x.link.file.SetReadDeadline(time.Now().Add(wakeTimeout))
		err = x.link.send(append(encode(msgWake), which), passed...)
	}
	if err == nil {
		err = x.awaitHello()
	}
	if err != nil {
		x.Kill()
		x.close()
		return nil
	}
	x.link.file.SetReadDeadline(time.Time{})
	return x
}

// takeIdle makes the idle leader the leader of x.
func (c *Conn) takeIdle(x *Exec) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.idle
	if r == nil {
		return false
	}
	r.timer.Stop()
	c.idle = nil
	x.id, x.link, x.pid, x.leader = r.id, r.link, r.pid, r.leader
	c.execs[x.id] = x
	return true
}
