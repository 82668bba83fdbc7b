package egress

import (
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// maxPermitting bounds the questions of processes that wait for an answer.
const maxPermitting = 64

// permit has somebody asked for a host, if id is not 0. The next report does not wait for the
// answer.
func (e *Egress) permit(c *child, id uint64, text string) error {
	if id == 0 {
		return nil
	}
	host, err := allowlist.ParseName(text)
	if err != nil || e.options.Permit == nil || e.permitting.Load() >= maxPermitting {
		return e.answerPermit(c, id, false)
	}
	e.permitting.Add(1)
	go func() {
		allowed := e.options.Permit(string(host), c.gone)
		e.permitting.Add(-1)
		_ = e.answerPermit(c, id, allowed) // a process that has ended asks again
	}()
	return nil
}

func (e *Egress) answerPermit(c *child, id uint64, allowed bool) error {
	o := order{Permitted: id}
	if !allowed {
		o.Refused = NotAllowed
	}
	e.orders.Lock()
	defer e.orders.Unlock()
	return e.tell(c, func() error { return c.wire.send(o) })
}
