package egress

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/refused"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// see makes the sockets that see what the kernel refuses. A host may have no IPv6.
func (e *Egress) see() error {
	sources, err := refused.Sources()
	if err != nil {
		return errdefs.New(errdefs.Internal, "egress: %w", err)
	}
	for _, s := range sources {
		f, err := e.namespace.Raw(s.Family, s.Protocol, s.Filter)
		if s.Family == unix.AF_INET6 && errors.Is(err, unix.EAFNOSUPPORT) {
			continue
		}
		if err != nil {
			return err
		}
		e.refusals = append(e.refusals, f)
	}
	return nil
}

// publish takes the ports of the host at which ports inside are shown.
func (e *Egress) publish() error {
	for _, p := range e.options.Publish {
		l, err := publish.Listen(context.Background(), p)
		if err != nil {
			return err
		}
		e.published = append(e.published, l)
	}
	return nil
}

// servePublished has the host's ports listen, and the process serve them.
func (e *Egress) servePublished(c *child) error {
	for _, l := range e.published {
		if err := l.Resume(); err != nil {
			return err
		}
		if err := c.wire.send(order{Publish: &l.Port}, l.File()); err != nil {
			return err
		}
	}
	return nil
}

// pausePublished has the host refuse connections that no process serves, and tells of those of a
// process that has ended.
func (e *Egress) pausePublished(c *child) {
	for _, l := range e.published {
		l.Pause()
	}
	for _, in := range c.inbound.Rest() {
		e.options.Inbound(in)
	}
}

// takeInbound acts on what a process says of a published port.
func (e *Egress) takeInbound(c *child, event publish.Event) error {
	in, ended, err := c.inbound.Take(event, e.published)
	if ended {
		e.options.Inbound(in)
	}
	return err
}

// giveSockets gives a process sockets with which it reaches the sandbox, and nothing else.
func (e *Egress) giveSockets(c *child, id uint64) error {
	families := []int{unix.AF_INET}
	if e.hasIPv6() {
		families = append(families, unix.AF_INET6)
	}
	var files []*os.File
	defer func() { closeAll(files) }()
	for _, family := range families {
		f, err := e.namespace.Stream(family)
		if err != nil {
			break // of fewer it makes do
		}
		files = append(files, f)
	}
	e.orders.Lock()
	defer e.orders.Unlock()
	return e.tell(c, func() error { return c.wire.send(order{Sockets: id}, files...) })
}

// beginInbound prepares a process for published ports, and for what the kernel refuses.
func (p *process) beginInbound() {
	p.inside.Ask = func(id uint64) { p.tell(report{Sockets: id}) }
	p.published.Sockets, p.published.Busy = p.inside.Get, p.idle.Begin
	p.published.Tell = func(e publish.Event) { p.tell(report{Inbound: &e}) }
	p.refusals.Name = func(a refused.Attempt) string {
		if host, known := p.hosts.Name(a.At.Addr()); known {
			return string(host)
		}
		return a.At.Addr().String()
	}
}

// seeRefusals takes the descriptors that show what the kernel refuses from those of the first
// order.
func (p *process) seeRefusals(o order, files []*os.File) ([]*os.File, error) {
	first := len(files) - o.Refusals
	if first < 0 || o.Refusals < 0 {
		return nil, errdefs.New(errdefs.Internal, "malformed order")
	}
	err := p.refusals.Start(files[first:], func(d Denied) { p.tell(report{Denied: &d}) })
	return files[:first], err
}

// takePlace takes what an order brings descriptors for: a published port, sockets, or a host.
func (p *process) takePlace(o order, files []*os.File) error {
	switch {
	case o.Publish != nil:
		return p.servePort(o, files)
	case o.Sockets != 0:
		p.inside.Answer(o.Sockets, files)
		return nil
	}
	return p.serveHost(o, files)
}

// servePort accepts connections to a published port.
func (p *process) servePort(o order, files []*os.File) error {
	defer closeAll(files)
	if len(files) != 1 {
		return errdefs.New(errdefs.Internal, "malformed order")
	}
	l, err := net.FileListener(files[0])
	if err != nil {
		return err
	}
	p.published.Serve(p.ctx, &p.working, *o.Publish, l)
	return nil
}
