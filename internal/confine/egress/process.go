package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/address"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/idle"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/refused"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Verb is the hidden command line verb that runs an egress process.
const Verb = "__egress"

// wireFD is the descriptor of its end of the socket.
const wireFD = 3

const (
	// maxConns bounds the connections at once. Others wait to be served, one of each listener
	// accepted.
	maxConns = 1000
	// maxQueries bounds the DNS queries at once that came in packets.
	maxQueries = 256
	// gcPercent trades processor time for memory: there is a process for each sandbox.
	gcPercent = 50
	// endPatience bounds how long connections take to end when the process is to end.
	endPatience = time.Second
)

// process is the egress process.
//
// Goroutines: one reads orders, one writes reports; one per listener and socket; two per
// connection; one per DNS query; a timer for refusals.
type process struct {
	wire         wire
	live         liveTable
	reports      chan report
	ended        chan struct{} // closed when nothing more is reported
	hosts        question.Hosts
	denials      denialTable
	closings     closingTable
	names        question.Names
	secrets      secretTable
	checks       question.Ports
	permits      *question.Permits // nil: nobody is asked
	inside       question.Sockets
	published    publish.Server
	refusals     refused.Reader
	quotas       question.Quotas
	meter        meter
	links        chan struct{} // a token for each connection to an intercepted host, or to that of a secret
	conns        chan struct{} // a token for each
	queries      chan struct{}
	next         atomic.Uint64 // id of a connection
	interception interception
	proxies      *forwardproxy.Table // nil: hosts are reached directly
	proxyRoots   rootsReader         // verify a proxy that speaks TLS
	wantsNames   atomic.Bool         // a proxy has refused an address, and taken the name
	idle         idle.Trimmer
	working      sync.WaitGroup
	ctx          context.Context // ends when the process is to end

	patience time.Duration // headPatience
	lookup   func(ctx context.Context, name string) ([]netip.Addr, error)
	check    func(addr netip.Addr) error // of where a name leads
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
}

// Main runs the egress process and returns its exit code.
func Main() int {
	if err := harden(); err != nil {
		fmt.Fprintln(os.Stderr, "egress:", err)
		return 1
	}
	debug.SetGCPercent(gcPercent)
	if err := unix.SetNonblock(wireFD, true); err != nil {
		fmt.Fprintln(os.Stderr, "egress:", err)
		return 1
	}
	resolver := &net.Resolver{PreferGo: true}
	p := newProcess(os.NewFile(wireFD, "egress"))
	p.lookup = p.names.Pinned(func(ctx context.Context, name string) ([]netip.Addr, error) {
		return resolver.LookupNetIP(ctx, "ip", name)
	})
	p.connect = (&net.Dialer{}).DialContext
	p.check = func(addr netip.Addr) error {
		if err := address.CheckPublic(addr); err != nil {
			return err
		}
		return address.CheckRoute(addr)
	}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "egress:", err)
		return 1
	}
	return 0
}

func newProcess(socket *os.File) *process {
	p := &process{
		wire: wire{socket}, reports: make(chan report, 64), ended: make(chan struct{}),
		conns: make(chan struct{}, maxConns), queries: make(chan struct{}, maxQueries), links: make(chan struct{}, maxConns),
		patience: headPatience,
	}
	p.hosts.Ask = func(h allowlist.Host) { p.tell(report{Ask: string(h)}) }
	p.checks.Ask = func(id uint64, port uint16) { p.tell(report{Check: id, Port: port}) }
	p.closings.report = func(ended []closed) { _ = p.wire.send(report{Closed: ended}) } // without a supervisor the orders end, too
	p.denials.Report = func(d Denied) { p.tell(report{Denied: &d}) }
	p.beginInbound()
	p.quotas.Send = func(id uint64, u question.Use) { p.tell(report{Use: id, Wanted: &u}) }
	p.meter = meter{ask: p.quotas.Take, reached: p.live.cut}
	return p
}

// run serves until the supervisor ends it or is gone.
func (p *process) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.ctx = ctx
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.report()
	}()
	err := p.obey()
	cancel()
	ended := make(chan struct{})
	go func() {
		p.working.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		p.closings.flush()
		p.refusals.Close()
		p.denials.Flush()
		close(p.ended)
		<-written
	case <-time.After(endPatience):
	}
	return err
}

// tell reports to the supervisor, unless the process has ended: a query may still be answered
// then.
func (p *process) tell(r report) {
	select {
	case p.reports <- r:
	case <-p.ended:
	}
}

// report sends what is told, and at the end what is left.
func (p *process) report() {
	for {
		select {
		case r := <-p.reports:
			_ = p.wire.send(r) // without a supervisor the orders end, too
		case <-p.ended:
			p.reportLeft()
			return
		}
	}
}

func (p *process) reportLeft() {
	for {
		select {
		case r := <-p.reports:
			_ = p.wire.send(r)
		default:
			return
		}
	}
}

// obey carries out orders until there are no more.
func (p *process) obey() error {
	var first order
	files, err := p.wire.receive(&first)
	if err != nil {
		return endOf(err)
	}
	if err := p.begin(first, files); err != nil {
		return err
	}
	p.tell(report{Ready: true})
	p.idle.Begin()() // the start is work, too
	for {
		var o order
		files, err := p.wire.receive(&o)
		if err != nil {
			return endOf(err)
		}
		if err := p.carryOut(o, files); err != nil {
			return err
		}
	}
}

// begin takes all that the first order has.
func (p *process) begin(first order, files []*os.File) error {
	if err := p.setRules(first.Rules); err != nil {
		return err
	}
	if err := p.setLimits(first.Limits); err != nil {
		return err
	}
	if first.Permits {
		p.permits = question.NewPermits(func(id uint64, host string) { p.tell(report{Permit: id, Host: host}) })
	}
	if err := p.secrets.set(first.Secrets, p.quotas.Take); err != nil {
		return err
	}
	files, err := p.seeRefusals(first, files)
	if err != nil {
		return err
	}
	roots, files, err := takeRoots(first.Roots, files)
	if err == nil {
		err = p.beginInterception(first.Authority, roots)
	}
	if err == nil {
		err = p.setProxies(first.Proxy, roots)
	}
	if err == nil && first.Packets > len(files) {
		err = errdefs.New(errdefs.Internal, "malformed order")
	}
	if err != nil {
		return err
	}
	return p.serveResolver(files[:first.Packets], files[first.Packets:])
}

// carryOut carries out a later order.
func (p *process) carryOut(o order, files []*os.File) error {
	switch {
	case o.SetRules:
		closeAll(files)
		return p.setRules(o.Rules)
	case o.Acknowledge != 0:
		closeAll(files)
		go p.acknowledge(o.Acknowledge) // the next order does not wait for it
	case o.Handover:
		if err := p.secrets.take(files); err != nil {
			return err
		}
		go p.tell(report{Took: true, All: p.secrets.isComplete()}) // nor for this
	case o.Used != 0 && o.Quota != nil:
		closeAll(files)
		p.quotas.Answer(o.Used, *o.Quota)
	case o.Permitted != 0 && p.permits != nil:
		closeAll(files)
		p.permits.Answer(o.Permitted, o.Refused == "")
	case o.Checked != 0:
		closeAll(files)
		p.checks.Answer(o.Checked, o.Refused)
	default:
		return p.takePlace(o, files)
	}
	return nil
}

// acknowledge says that the orders so far are carried out, and first what waits to be reported.
func (p *process) acknowledge(number uint64) {
	p.closings.flush()
	p.refusals.Flush()
	p.denials.Flush()
	p.tell(report{Obeyed: number})
}

// setRules has other rules from now on.
func (p *process) setRules(texts []string) error {
	rules := make([]allowlist.Rule, len(texts))
	for i, text := range texts {
		var err error
		if rules[i], err = allowlist.ParseRule(text); err != nil {
			return err
		}
	}
	p.live.set(rules)
	p.hosts.ForgetRefused()
	return nil
}

// setLimits takes the limits of the network, before anything is served.
func (p *process) setLimits(text string) error {
	if text == "" {
		return nil
	}
	limits, err := quota.ParseNetwork(text)
	if err != nil {
		return err
	}
	most, _ := limits.Get(quota.Connections)
	p.live.most = int(most.Max)
	p.meter.set(limits)
	return nil
}

// setProxies takes the proxies by which hosts are reached, before anything is served.
func (p *process) setProxies(s forwardproxy.Settings, roots rootsReader) (err error) {
	if s.IsZero() {
		return nil
	}
	p.proxyRoots = roots
	p.proxies, err = forwardproxy.Parse(s)
	return err
}

func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// serveHost accepts connections to a host.
func (p *process) serveHost(o order, files []*os.File) error {
	defer closeAll(files)
	if len(files) != len(o.Ports) {
		return errdefs.New(errdefs.Internal, "malformed order")
	}
	for i, f := range files {
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		t := target{allowlist.Host(o.Host), o.Ports[i]}
		if !p.live.keep(entry{t, o.Addr}, l) {
			l.Close()
			continue
		}
		p.accept(l, p.conns, func(down *net.TCPConn) { p.serve(down, t) })
	}
	p.hosts.Set(allowlist.Host(o.Host), o.Addr, o.Refused)
	return nil
}

// acceptPause is how long a listener waits when there are no descriptors left.
const acceptPause = 50 * time.Millisecond

// accept serves the connections of a listener, each in a goroutine, as far as there are tokens.
func (p *process) accept(l net.Listener, tokens chan struct{}, serve func(*net.TCPConn)) {
	context.AfterFunc(p.ctx, func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err == nil {
				select { // a listener that waits holds no token: there may be more of them
				case tokens <- struct{}{}:
				case <-p.ctx.Done():
					c.Close()
					return
				}
				p.working.Go(func() {
					defer p.idle.Begin()()
					defer func() { <-tokens }()
					down := c.(*net.TCPConn)
					stop := context.AfterFunc(p.ctx, func() { down.Close() })
					defer stop()
					defer down.Close()
					serve(down)
				})
				continue
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(acceptPause)
		}
	}()
}
