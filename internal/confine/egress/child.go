package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/landlock"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// child is a process that serves.
type child struct {
	wire    wire
	process *os.Process
	said    complaints
	ended   chan error // how it ended
	open    map[uint64]Allowed
	inbound publish.Open
	gone    chan struct{} // closed when nothing of it counts any more
	took    chan struct{} // has a token when it has taken secrets

	// Of these Egress.mu is held.
	obeyed     map[uint64]chan struct{} // by the number of an order to acknowledge
	hasSecrets bool
}

// maxOpen bounds the connections that a process may say are open: what it has, and what has not
// been read yet.
const maxOpen = 3 * maxConns

// maxTook bounds the handovers of secrets that are waited for at once.
const maxTook = 100

// childEndPatience bounds how long a process takes to end that is asked to.
const childEndPatience = endPatience + 2*time.Second

// notStarted says why the process does not start. Landlock leaves it no shared libraries.
func notStarted(err error) error {
	if errors.Is(err, unix.EACCES) {
		return errdefs.New(errdefs.Unsupported, "egress: start the process: %w; agentfense must be linked statically: build it with CGO_ENABLED=0", err)
	}
	return errdefs.New(errdefs.Unsupported, "egress: start the process: %w", err)
}

// start starts a process from a thread of its own, which the process does not outlive.
func (e *Egress) start() (*child, error) {
	ours, theirs, err := wirePair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := &child{
		wire: wire{ours}, ended: make(chan error, 1), open: map[uint64]Allowed{},
		gone: make(chan struct{}), took: make(chan struct{}, maxTook), obeyed: map[uint64]chan struct{}{},
	}
	const programFD = "4"
	cmd := exec.CommandContext(context.Background(), "/proc/self/fd/"+programFD, Verb)
	cmd.Args[0] = "agentfense"
	cmd.Env = []string{} // nothing of the caller's
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{theirs, e.options.Program}
	cmd.Stderr = &c.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(e.options.UID), Gid: uint32(e.options.GID)}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // the thread may not, then
	if err != nil {
		ours.Close()
		return nil, errdefs.New(errdefs.Internal, "egress: %w", err)
	}
	defer null.Close()
	cmd.Stdin, cmd.Stdout = null, null
	started := make(chan error, 1)
	thread.Go(func() {
		err := e.restrict()
		if err == nil {
			err = cmd.Start()
		}
		started <- err
		if err == nil {
			c.ended <- cmd.Wait()
		}
	})
	if err := <-started; err != nil {
		ours.Close()
		return nil, notStarted(err)
	}
	c.process = cmd.Process
	return c, nil
}

// restrict takes from the calling thread, and from what it starts, the capabilities that an
// ordinary user's supervisor has, and all files but those of the host's resolver.
func (e *Egress) restrict() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	version := landlock.Version()
	if version == 0 {
		return nil
	}
	places := []landlock.Place{{Path: "/etc"}}
	control(e.options.Program, func(fd int) { places = append(places, landlock.Place{Path: "/proc/self/fd/" + strconv.Itoa(fd)}) })
	for _, file := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf"} {
		if path, err := filepath.EvalSymlinks(file); err == nil {
			places = append(places, landlock.Place{Path: filepath.Dir(path)}) // it is replaced by another file
		}
	}
	return landlock.Restrict(version, places...)
}

// end asks the process to end, and kills it when it does not.
func (c *child) end() {
	control(c.wire.file, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // it may have ended
	deadline := time.Now().Add(childEndPatience)
	_ = c.wire.file.SetDeadline(deadline)
}

// serve gives a process its orders and takes its reports until it ends. The error says why.
func (e *Egress) serve(c *child) error {
	err := e.instruct(c)
	for err == nil {
		var r report
		var files []*os.File
		if files, err = c.wire.receive(&r); err == nil {
			closeAll(files)
			err = e.take(c, r)
		}
	}
	_ = c.process.Kill() // it may have ended
	end := <-c.ended
	close(c.gone)
	c.wire.file.Close()
	e.pausePublished(c)
	for _, a := range c.open {
		a.Sent, a.Received = -1, -1
		e.options.Allowed(a)
	}
	if errors.Is(err, io.EOF) {
		err = end
	}
	return errdefs.New(errdefs.Internal, "egress: the process ended: %w: %s", err, c.said.String())
}

// instruct tells a process all that there is.
func (e *Egress) instruct(c *child) error {
	e.orders.Lock()
	defer e.orders.Unlock()
	e.mu.Lock()
	first := order{Packets: len(e.packets), SetRules: true, Secrets: e.wireSecrets(), Rules: allowlist.Texts(e.rules), Authority: e.options.Authority, Limits: e.options.Limits.String(), Proxy: e.options.Proxy, Permits: e.options.Permit != nil, Roots: e.options.Roots != nil, Refusals: len(e.refusals)}
	known := slices.Clone(e.order)
	e.child = c // SetRules tells it from now on
	if e.isClosing() {
		c.end()
	}
	e.mu.Unlock()
	files := slices.Concat(e.packets, e.listeners)
	if first.Roots {
		files = append(files, e.options.Roots)
	}
	files = append(files, e.refusals...)
	return e.tell(c, func() error {
		if err := c.wire.send(first, files...); err != nil {
			return err
		}
		if err := e.servePublished(c); err != nil {
			return err
		}
		return c.place(known...)
	})
}

// place tells the process where hosts are. Egress.orders is held, so that the hosts stay as they
// are.
func (c *child) place(hosts ...*host) error {
	for _, h := range hosts {
		o := order{Host: string(h.name), Addr: h.addr, Ports: slices.Sorted(maps.Keys(h.listeners))}
		var files []*os.File
		for _, port := range o.Ports {
			files = append(files, h.listeners[port])
		}
		if err := c.wire.send(o, files...); err != nil {
			return err
		}
	}
	return nil
}

// take acts on a report.
func (e *Egress) take(c *child, r report) error {
	switch {
	case r.Ready:
		select {
		case <-e.ready:
		default:
			close(e.ready)
		}
	case r.Obeyed != 0:
		e.mu.Lock()
		defer e.mu.Unlock()
		if done := c.obeyed[r.Obeyed]; done != nil {
			delete(c.obeyed, r.Obeyed)
			close(done)
		}
	case r.Took:
		e.tookSecrets(c, r.All)
	case r.Ask != "":
		return e.answer(c, r.Ask)
	case r.Use != 0:
		return e.useQuota(c, r.Use, r.Wanted)
	case r.Check != 0:
		return e.checkPort(c, r.Check, r.Port)
	case r.Opened != nil:
		return e.opened(c, *r.Opened)
	case r.Closed != nil:
		for _, end := range r.Closed {
			e.closed(c, end)
		}
	case r.Denied != nil:
		d := *r.Denied
		d.Host, d.Reason = d.Host[:min(len(d.Host), maxAsked)], d.Reason[:min(len(d.Reason), maxReason)]
		d.Protocol = d.Protocol[:min(len(d.Protocol), maxProtocol)]
		d.Count = min(max(d.Count, 1), maxCount)
		e.options.Denied(d)
	case r.Sockets != 0:
		return e.giveSockets(c, r.Sockets)
	case r.Inbound != nil:
		return e.takeInbound(c, *r.Inbound)
	default:
		return e.permit(c, r.Permit, r.Host)
	}
	return nil
}

// Bounds of what a process may tell of.
const (
	maxAsked    = 1024 // bytes of a name
	maxReason   = 1024 // bytes
	maxProtocol = 16
	maxCount    = 1 << 24
	maxSum      = 1 << 53 // of a connection: every JSON parser has it exactly
)

func bounded(n int64) int64 { return min(max(n, 0), maxSum) }

// opened believes that there is a connection, but not where it may go. Errors: Internal, for one
// that no rule allows.
func (e *Egress) opened(c *child, o opened) error {
	a := o.Allowed
	text, allowed := e.secretRule(allowlist.Host(a.Host), a.Port)
	if !allowed {
		var rule allowlist.Rule
		rule, allowed = e.ruleOf(allowlist.Host(a.Host), a.Port)
		text = rule.WithoutRequests()
	}
	switch _, twice := c.open[o.ID]; {
	case len(c.open) >= maxOpen:
		return errdefs.New(errdefs.Internal, "too many connections")
	case twice, !allowed, a.Addr.Zone() != "", a.Proxy != "" && !e.isProxy(a.Proxy):
		return errdefs.New(errdefs.Internal, "it told of a connection that cannot be")
	}
	a.Rule, a.Error = text, a.Error[:min(len(a.Error), maxErrorText)]
	c.open[o.ID] = a
	return nil
}

// closed records a connection that has ended.
func (e *Egress) closed(c *child, end closed) {
	if a, known := c.open[end.ID]; known {
		delete(c.open, end.ID)
		a.Sent, a.Received, a.Requests = bounded(end.Sent), bounded(end.Received), bounded(end.Requests)
		e.options.Allowed(a)
	}
}

// isProxy reports whether a place is that of a proxy by which hosts are reached.
func (e *Egress) isProxy(place string) bool {
	return slices.ContainsFunc(e.proxies.All(), func(p *forwardproxy.Proxy) bool { return p.Place() == place })
}

// ruleOf returns the rule that allows connections to a host with an address inside, or that
// did: a process may tell of a connection after its rule was revoked.
func (e *Egress) ruleOf(name allowlist.Host, port uint16) (allowlist.Rule, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.hosts[name]; !known {
		return allowlist.Rule{}, false
	}
	if rule, allowed := allowlist.Find(e.rules, name, port); allowed {
		return rule, true
	}
	return allowlist.Find(e.ever, name, port)
}

// answer gives a host its address.
func (e *Egress) answer(c *child, text string) error {
	name, err := allowlist.ParseName(text)
	if err != nil {
		return err
	}
	e.orders.Lock()
	defer e.orders.Unlock()
	h, refused := e.assign(name)
	return e.tell(c, func() error {
		if refused != nil {
			return c.wire.send(order{Host: text, Refused: refused.Error()})
		}
		return c.place(h)
	})
}

// complaints keeps the beginning of what a process writes to its standard error.
type complaints struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// maxComplaints bounds it in bytes.
const maxComplaints = 4096

func (c *complaints) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(b[:min(len(b), maxComplaints-c.text.Len())])
	return len(b), nil
}

func (c *complaints) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}
