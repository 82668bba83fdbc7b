package egress

import (
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// obeyPatience bounds how long the process takes to obey. One that takes longer is killed: no
// connection outlives a rule that was revoked.
const obeyPatience = 5 * time.Second

// SetRules changes what is allowed. When it returns, the connections that no rule allows any more
// are closed, and what is allowed now can be reached. Errors: Exhausted, if there are more hosts
// and ports than listeners; then nothing has changed.
func (e *Egress) SetRules(rules []allowlist.Rule) error {
	e.orders.Lock()
	c, done, err := e.change(rules)
	if err == nil && c != nil {
		err = c.change(e, rules)
	}
	e.orders.Unlock()
	if c == nil {
		return err
	}
	if err == nil {
		select {
		case <-done:
			return nil
		case <-c.gone: // the next one begins with the new rules
			return nil
		case <-time.After(e.patience):
		}
	}
	_ = c.process.Kill() // it may have ended
	<-c.gone
	return nil
}

// settlePatience bounds how long Settle waits for a process that does not answer.
const settlePatience = 300 * time.Millisecond

// Settle returns when the process has reported what it knows, or does not answer in time. What was
// refused a moment ago is counted for a while before it is reported.
func (e *Egress) Settle() {
	e.orders.Lock()
	e.mu.Lock()
	c, done := e.child, make(chan struct{})
	if c != nil {
		e.asked++
		c.obeyed[e.asked] = done
	}
	last := e.asked
	e.mu.Unlock()
	var err error
	if c != nil {
		err = e.tell(c, func() error { return c.wire.send(order{Acknowledge: last}) })
	}
	e.orders.Unlock()
	if c == nil || err != nil {
		return
	}
	select {
	case <-done:
	case <-c.gone:
	case <-time.After(settlePatience):
		e.mu.Lock()
		delete(c.obeyed, last)
		e.mu.Unlock()
	}
}

// change takes the rules, and makes and closes listeners. The child is nil if none runs; else done
// is closed when it has obeyed. e.orders is held.
func (e *Egress) change(rules []allowlist.Rule) (c *child, done chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.checkRoomLocked(rules); err != nil {
		return nil, nil, err
	}
	before := e.rules
	e.rules = rules
	if err := e.rearrangeLocked(); err != nil {
		e.rules = before
		e.closeUnusedLocked()
		return nil, nil, err
	}
	e.closeUnusedLocked()
	for _, r := range rules {
		if !slices.Contains(e.ever, r) {
			e.ever = append(slices.Clip(e.ever), r)
		}
	}
	if e.child == nil {
		return nil, nil, nil
	}
	e.asked++
	done = make(chan struct{})
	e.child.obeyed[e.asked] = done
	return e.child, done, nil
}

// rearrangeLocked makes the listeners that the rules need and that are missing, and reserves the
// ports of those that are made on demand.
func (e *Egress) rearrangeLocked() error {
	if err := e.reserveLocked(); err != nil {
		return err
	}
	for _, h := range e.order {
		if err := e.openLocked(h, allowlist.Ports(e.rules, h.name)); err != nil {
			return err
		}
	}
	for _, r := range e.rules {
		if r.Wildcard {
			continue // on demand
		}
		if _, err := e.assignLocked(r.Host); err != nil {
			return err
		}
	}
	return nil
}

func (e *Egress) closeUnusedLocked() {
	for _, h := range e.order {
		e.closeLocked(h, allowlist.Ports(e.rules, h.name))
	}
	e.releaseLocked(reservedPorts(e.rules))
}

// checkRoomLocked refuses rules that need more listeners than there are.
func (e *Egress) checkRoomLocked(rules []allowlist.Rule) error {
	n := len(reservedPorts(rules))
	for _, h := range e.order {
		n += len(allowlist.Ports(rules, h.name))
	}
	for _, r := range rules {
		if _, known := e.hosts[r.Host]; !r.Wildcard && !known {
			n++
			if r.Host == allowlist.Localhost {
				n++ // of IPv6, too
			}
		}
	}
	if n > maxListeners {
		return errdefs.New(errdefs.Exhausted, "allowed hosts: %d hosts and ports, more than the %d that one sandbox may have", n, maxListeners)
	}
	return nil
}

// change tells the process of the rules and of where hosts are, and has it say that it has obeyed.
// e.orders is held.
func (c *child) change(e *Egress, rules []allowlist.Rule) error {
	return e.tell(c, func() error {
		if err := c.wire.send(order{SetRules: true, Rules: allowlist.Texts(rules)}); err != nil {
			return err
		}
		e.mu.Lock()
		hosts, last := slices.Clone(e.order), e.asked
		e.mu.Unlock()
		if err := c.place(hosts...); err != nil {
			return err
		}
		return c.wire.send(order{Acknowledge: last})
	})
}

// tell sends orders to a process, which must read them in time: what it is told next waits for
// e.orders, which is held.
func (e *Egress) tell(c *child, send func() error) error {
	if err := c.wire.file.SetWriteDeadline(time.Now().Add(e.patience)); err != nil {
		return err
	}
	defer func() { _ = c.wire.file.SetWriteDeadline(time.Time{}) }() // it may have ended
	return send()
}
