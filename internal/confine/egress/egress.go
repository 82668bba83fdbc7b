// Package egress is the network of a sandbox that reaches named hosts only.
//
// The sandbox is in a network namespace where every address is local (package netns). An
// address of 100.64.0.0/10 stands there for each host, and listeners of ours have the ports
// that are allowed. The egress process serves these from the host's network: it answers DNS
// queries, checks that a connection is for the host that it was made to, looks that name up,
// checks where it leads, dials and copies. Whatever is unclear is refused.
//
// Two ends: an Egress is the supervisor's, which gives out addresses, makes the listeners and
// keeps the process running; Main is the process, which has no rights but to connect. What it
// says is taken with care: the supervisor gives addresses to hosts that the rules cover, and no
// others.
//
// Lock order: Egress.orders before Egress.mu.
package egress

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/netns"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Resolver is the address of the name server inside. Every other address answers, too.
var Resolver = allowlist.Synthetic.Addr().Next()

const (
	// maxNames bounds the hosts of one rule with a wildcard: what looks names up could tell
	// something by each.
	maxNames = 256
	// maxListeners bounds the listeners of all hosts, and the reserved ports.
	maxListeners = 1024
)

// Options say what an Egress is.
type Options struct {
	// Program is this program, opened so that it can be executed. Start takes it over.
	Program *os.File
	// UID and GID are those of the process when root starts it; else they are not used.
	UID, GID int
	Rules    []allowlist.Rule // at the start; SetRules changes them

	// Limits are those of the network. They count from Start on, whatever process serves.
	Limits quota.Set
	// Secrets are those of the sandbox; GiveSecrets has their values.
	Secrets []secret.Secret

	// Namespace is the sandbox's network namespace, if a runtime has made one, in which nothing
	// runs yet. Only Start uses it. Changed is called, at most once and whatever else is called
	// then, when somebody gives it another network.
	Namespace *os.File
	Changed   func(name string)

	// Authority, if set, signs for the hosts whose connections are opened. Without it none can be.
	// Roots is a file of the certificates by which these hosts are verified, and proxies that speak
	// TLS; nil without either. Start takes it over.
	Authority *authority.Pair
	Roots     *os.File

	// Proxy are the proxies by which hosts are reached.
	Proxy forwardproxy.Settings

	// Publish are the ports inside that the host shows.
	Publish []publish.Port

	// Allowed and Inbound are told of connections that have ended, Denied of refusals, and Failed
	// of the end of the process, which is started again. They are called one at a time, and must
	// not wait for Close.
	Allowed func(Allowed)
	Inbound func(publish.Inbound)
	Denied  func(Denied)
	Failed  func(error)
	// Permit, if set, answers for a host that no rule allows, before it is refused: true if one
	// does now. withdrawn is closed when nobody waits. It may call SetRules.
	Permit func(host string, withdrawn <-chan struct{}) bool
	// Limited, if set, is told of a limit that is reached for the first time, of the secret of; "":
	// of the network.
	Limited func(of string, l quota.Limit)
}

// Egress is the network of one sandbox. It is safe for concurrent use.
type Egress struct {
	options   Options
	namespace *netns.Namespace
	packets   []*os.File // the resolver's sockets
	listeners []*os.File
	refusals  []*os.File // see what the kernel refuses
	published []*publish.Listener
	ready     chan struct{} // closed when a process has served for the first time
	failed    chan error    // has the first end of a process
	closing   chan struct{}
	kept      chan struct{} // closed when no process is kept any more
	patience  time.Duration // obeyPatience
	ledger    *quota.Ledger
	proxies   *forwardproxy.Table

	// orders is held while something is decided and the process told of it, so that it learns
	// of decisions in their order.
	orders sync.Mutex

	mu    sync.Mutex
	child *child // that runs
	rules []allowlist.Rule
	ever  []allowlist.Rule // that were rules once: connections may still be told of
	hosts map[allowlist.Host]*host
	order []*host // in which they got their addresses
	taken int     // listeners, and reserved
	asked uint64  // the number of the last order to acknowledge

	reserved reservations

	permitting atomic.Int32 // calls of Options.Permit
}

// host is a host that has an address inside.
type host struct {
	name      allowlist.Host
	addr      netip.Addr
	listeners map[uint16]*os.File // by port
}

// Start makes the network and begins to start the process; Ready says how that went. Errors:
// Unsupported, Exhausted, Invalid.
func Start(o Options) (*Egress, error) {
	proxies, err := forwardproxy.Parse(o.Proxy)
	if err != nil {
		o.Program.Close()
		o.Roots.Close()
		return nil, err
	}
	e := &Egress{
		options: o, rules: o.Rules, ever: o.Rules, hosts: map[allowlist.Host]*host{},
		ready: make(chan struct{}), failed: make(chan error, 1),
		closing: make(chan struct{}), kept: make(chan struct{}), patience: obeyPatience,
		ledger: newLedger(o), proxies: proxies,
	}
	if o.Namespace != nil {
		e.namespace, err = netns.Enter(o.Namespace, o.Changed)
	} else {
		e.namespace, err = netns.New()
	}
	if err != nil {
		o.Program.Close()
		o.Roots.Close()
		return nil, err
	}
	if err := errors.Join(e.listen(), e.see(), e.publish()); err != nil {
		return nil, errors.Join(err, e.closeFiles())
	}
	go e.keep()
	return e, nil
}

// newLedger counts what is used of all limits.
func newLedger(o Options) *quota.Ledger {
	secrets := map[string]quota.Set{}
	for _, s := range o.Secrets {
		secrets[s.Name] = s.Quota
	}
	return quota.NewLedger(o.Limits, secrets)
}

// Namespace is the sandbox's network namespace. It stays the Egress's.
func (e *Egress) Namespace() *os.File { return e.namespace.File() }

// listen makes the resolver's sockets and the listeners of the hosts that the rules name.
func (e *Egress) listen() error {
	for _, at := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		const dns = 53
		udp, err := e.namespace.ListenUDP(netip.AddrPortFrom(at, dns))
		if err != nil && at.Is6() {
			continue // a host without IPv6
		}
		if err != nil {
			return err
		}
		e.packets = append(e.packets, udp)
		tcp, err := e.namespace.ListenTCP(netip.AddrPortFrom(at, dns))
		if err != nil {
			return err
		}
		e.listeners = append(e.listeners, tcp)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rearrangeLocked()
}

// assign returns the host's place inside, made if it has none. Errors: Denied, with what to tell
// about it; Exhausted.
func (e *Egress) assign(name allowlist.Host) (*host, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.assignLocked(name)
}

func (e *Egress) assignLocked(name allowlist.Host) (*host, error) {
	if h, known := e.hosts[name]; known {
		return h, nil
	}
	if reason := reasonGuarded(e.options.Secrets, target{host: name}); reason != "" && !allowlist.Intercepts(e.rules, name) {
		return nil, errdefs.New(errdefs.Denied, "%s", reason)
	}
	ports := allowlist.Ports(e.rules, name)
	switch {
	case len(ports) == 0:
		return nil, errdefs.New(errdefs.Denied, NotAllowed)
	case e.taken+len(ports) > maxListeners, e.isFullLocked(name):
		return nil, errdefs.New(errdefs.Denied, question.ReasonTooMany)
	}
	made := []*host{{name: name, addr: e.addressLocked(name), listeners: map[uint16]*os.File{}}}
	if name == allowlist.Localhost && e.hasIPv6() {
		made = append(made, &host{name: name, addr: netip.IPv6Loopback(), listeners: map[uint16]*os.File{}})
	}
	for _, h := range made {
		if err := e.openLocked(h, ports); err != nil {
			for _, h := range made {
				e.closeLocked(h, nil)
			}
			return nil, err
		}
	}
	e.hosts[name] = made[0]
	e.order = append(e.order, made...)
	return made[0], nil
}

// hasIPv6 reports whether the namespace has it.
func (e *Egress) hasIPv6() bool { return len(e.packets) > 1 }

// openLocked makes the listeners that a host lacks of these ports.
func (e *Egress) openLocked(h *host, ports []uint16) error {
	for _, port := range ports {
		if h.listeners[port] != nil {
			continue
		}
		f, err := e.namespace.ListenTCP(netip.AddrPortFrom(h.addr, port))
		if errdefs.Is(err, errdefs.Unavailable) {
			e.options.Denied(Denied{Host: string(h.name), Port: port, Reason: reasonTaken, Count: 1})
			continue
		}
		if err != nil {
			return err
		}
		h.listeners[port] = f
		e.taken++
	}
	return nil
}

// closeLocked closes a host's listeners but those of these ports.
func (e *Egress) closeLocked(h *host, ports []uint16) {
	for port, f := range h.listeners {
		if !slices.Contains(ports, port) {
			f.Close()
			delete(h.listeners, port)
			e.taken--
		}
	}
}

// addressLocked is the next address that stands for no host yet, or the one that name is.
func (e *Egress) addressLocked(name allowlist.Host) netip.Addr {
	if name == allowlist.Localhost {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	if addr, err := netip.ParseAddr(string(name)); err == nil {
		return addr
	}
	addr := Resolver.Next()
	for range e.order {
		addr = addr.Next()
	}
	return addr
}

// isFullLocked reports whether no more hosts are taken of the rules with a wildcard that cover
// name.
func (e *Egress) isFullLocked(name allowlist.Host) bool {
	for _, r := range e.rules {
		if !r.Wildcard || !r.Covers(name) {
			continue
		}
		n := 0
		for _, h := range e.order {
			if r.Covers(h.name) {
				n++
			}
		}
		if n >= maxNames {
			return true
		}
	}
	return false
}

// Ready returns when the process serves. Errors: Unsupported, if it does not start.
func (e *Egress) Ready(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	case err := <-e.failed:
		return errdefs.New(errdefs.Unsupported, "%w", err)
	case <-ctx.Done():
		return errdefs.New(errdefs.Unsupported, "egress: the process does not start: %w", ctx.Err())
	}
}

// Close ends the process, which reports what is left to report, and lets the namespace go.
func (e *Egress) Close() error {
	close(e.closing)
	e.mu.Lock()
	if e.child != nil {
		e.child.end()
	}
	e.mu.Unlock()
	<-e.kept
	return e.closeFiles()
}

func (e *Egress) closeFiles() error {
	e.options.Program.Close()
	e.options.Roots.Close()
	closeAll(e.packets)
	closeAll(e.listeners)
	closeAll(e.refusals)
	for _, l := range e.published {
		l.Close()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, h := range e.order {
		e.closeLocked(h, nil)
	}
	e.releaseLocked(nil)
	return e.namespace.Close()
}

// Pauses between two starts of the process.
const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// keep runs one process after another until Close.
func (e *Egress) keep() {
	defer close(e.kept)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := e.run()
		if e.isClosing() {
			return
		}
		select {
		case e.failed <- err:
		default:
		}
		e.options.Failed(err)
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-e.closing:
			return
		}
	}
}

// run starts a process and serves it until it ends.
func (e *Egress) run() error {
	c, err := e.start()
	if err != nil {
		return err
	}
	return e.serve(c)
}

func (e *Egress) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}
