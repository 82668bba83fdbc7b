package egress

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/egress/secretproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// wireSecret is a secret as an order has it, without its source.
type wireSecret struct {
	Name        string            `json:"name"`
	Hosts       []secret.Target   `json:"hosts"`
	Limits      []allowlist.Limit `json:"limits,omitempty"`
	Quota       string            `json:"quota,omitempty"` // as quota.Set writes it
	Placeholder string            `json:"placeholder"`
}

// handover are the descriptors of an order that hands over values: a pipe with a JSON object of
// them by name, and a file of the certificates that are trusted. The supervisor passes them on
// unread.
const handoverFiles = 2

// Bounds of what is read of them, in bytes.
const (
	maxValues = 512 << 10
	maxRoots  = 8 << 20
)

// secretTable has the secrets of the sandbox. Its zero value has none.
type secretTable struct {
	all    []secret.Secret // set by the first order
	quotas map[string]*secretQuota

	mu     sync.Mutex
	values map[string]string
	former []string // values that others have taken the place of; they are masked, too
	masker *secret.Masker
	config func() (*tls.Config, error) // towards hosts
}

// maxFormer bounds former values: the oldest are worth nothing by then.
const maxFormer = 16

// set takes the secrets, still without values. ask is for their limits.
func (t *secretTable) set(list []wireSecret, ask func(context.Context, question.Use) quota.Answer) error {
	if t.quotas == nil {
		t.quotas = map[string]*secretQuota{}
	}
	for _, w := range list {
		t.all = append(t.all, secret.Secret{Name: w.Name, Hosts: w.Hosts, Limits: w.Limits, Placeholder: w.Placeholder})
		if w.Quota == "" {
			continue
		}
		set, err := quota.ParseSecret(w.Quota)
		if err != nil {
			return err
		}
		t.quotas[w.Name] = newSecretQuota(w.Name, set, ask)
	}
	t.masker = secret.NewMasker()
	return nil
}

// take reads the values, and closes their file. It keeps the file of certificates until a host is
// to be verified. Errors do not tell what was read.
func (t *secretTable) take(files []*os.File) error {
	if len(files) != handoverFiles {
		closeAll(files)
		return errdefs.New(errdefs.Internal, "malformed order")
	}
	roots, files, err := takeRoots(true, files)
	if err != nil {
		return err
	}
	defer closeAll(files)
	text, err := io.ReadAll(io.LimitReader(files[0], maxValues))
	if err != nil {
		return errors.New("read the values of secrets")
	}
	values := map[string]string{}
	if err := json.Unmarshal(text, &values); err != nil {
		return errors.New("malformed values of secrets")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil {
		t.values = map[string]string{}
	}
	for name, value := range values { // a caller may know some of them only
		if was := t.values[name]; was != "" && was != value {
			t.former = append(t.former, was)
		}
		t.values[name] = value
	}
	t.former = t.former[max(0, len(t.former)-maxFormer):]
	t.masker = secret.NewMasker(slices.Concat(slices.Sorted(maps.Values(t.values)), t.former)...)
	t.config = clientConfig(roots)
	return nil
}

// clientConfig returns what makes the configuration of connections to hosts, once.
func clientConfig(roots rootsReader) func() (*tls.Config, error) {
	return sync.OnceValues(func() (*tls.Config, error) {
		pool, err := roots()
		if err != nil {
			return nil, err
		}
		return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}, nil
	})
}

// isComplete reports whether no value is missing.
func (t *secretTable) isComplete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(t.all, func(s secret.Secret) bool { return t.values[s.Name] == "" })
}

// at returns what serves a name inside, if it is that of a secret.
func (t *secretTable) at(inside allowlist.Host) (p secretproxy.Proxy, config func() (*tls.Config, error), is bool) {
	for _, s := range t.all {
		for i, to := range s.Hosts {
			if s.Inside(i) != inside {
				continue
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			p = t.proxyLocked(s, to)
			p.Inside = inside
			return p, t.config, true
		}
	}
	return secretproxy.Proxy{}, nil, false
}

// refuses returns why a target may not be reached directly, "" if it may: where the rule opens the
// connection, the secret is put in.
func (t *secretTable) refuses(at target, rule allowlist.Rule) string {
	if rule.Intercept && len(t.of(at)) > 0 {
		return ""
	}
	return reasonGuarded(t.all, at)
}

// of returns what puts secrets into requests that programs send to a target by its own name.
func (t *secretTable) of(at target) []secretproxy.Proxy {
	t.mu.Lock()
	defer t.mu.Unlock()
	var proxies []secretproxy.Proxy
	for _, s := range t.all {
		if slices.Contains(s.Hosts, secret.Target{Host: at.host, Port: at.port}) {
			proxies = append(proxies, t.proxyLocked(s, secret.Target{Host: at.host, Port: at.port}))
		}
	}
	return proxies
}

func (t *secretTable) proxyLocked(s secret.Secret, to secret.Target) secretproxy.Proxy {
	p := secretproxy.Proxy{
		Name: s.Name, Target: to, Placeholder: s.Placeholder, Limits: s.Limits, Value: t.values[s.Name], Masker: t.masker,
	}
	if q := t.quotas[s.Name]; q != nil {
		p.Quota = q
	}
	return p
}

// now returns p with the value of this moment.
func (t *secretTable) now(p secretproxy.Proxy) *secretproxy.Proxy {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.Value, p.Masker = t.values[p.Name], t.masker
	return &p
}

// current is what puts a secret into requests, with the value that it has at each request. A value
// may be replaced while a connection lasts.
type current struct{ get func() *secretproxy.Proxy }

func (c current) Check(r *http.Request) (status int, reason string) { return c.get().Check(r) }
func (c current) Request(r *httputil.ProxyRequest)                  { c.get().Request(r) }
func (c current) Response(r *http.Response) error                   { return c.get().Response(r) }
func (c current) Text(text string) string                           { return c.get().Text(text) }

func (c current) Stream(r *http.Response, s io.ReadWriteCloser) io.ReadWriteCloser {
	return c.get().Stream(r, s)
}

func (c current) Writer(w http.ResponseWriter) http.ResponseWriter { return c.get().Writer(w) }

// reasonGuarded returns why no connection leads to a host, if one of the secrets is for it. The
// port counts for localhost only.
func reasonGuarded(all []secret.Secret, at target) string {
	s, inside, guarded := secret.Guarding(all, at.host, at.port)
	if !guarded {
		return ""
	}
	return "secret " + s.Name + " is for this host: reach it by http://" + string(inside)
}

// reasonPlaceholder returns why a request with a text is refused: it has the placeholder of a
// secret, and not that of the one that is for this host.
func (t *secretTable) reasonPlaceholder(text, here string) string {
	for _, s := range t.all {
		if s.Name != here && strings.Contains(text, s.Placeholder) {
			return "the request has the placeholder of secret " + s.Name + ", which is not for this host"
		}
	}
	return ""
}

// runSecret serves a connection to the address of a secret. The connections that it makes to the
// secret's host end with it, so that each is the program's.
func (c *conn) runSecret(proxy secretproxy.Proxy, secure func() (*tls.Config, error)) error {
	var config *tls.Config
	if secure != nil && !proxy.Target.IsLocal() {
		var err error
		if config, err = secure(); err != nil {
			return err
		}
	}
	links := c.newLinks()
	transport := links.transport(config)
	proxy.Transport = countRequests{transport}
	proxy.Refused = func(reason string) {
		c.p.denials.note(string(proxy.Target.Host), proxy.Target.Port, reason, 1)
	}
	proxy.Explain = reasonOf
	web := proxy.Web()
	web.Filter = current{func() *secretproxy.Proxy { return c.p.secrets.now(proxy) }}
	strict := webproxy.Strict(c.down, c.p.patience, nil, func(err error) { proxy.Refused(refusalOf(err).reason) })
	webproxy.Serve(strict, web.Handler(), c.p.patience)
	transport.CloseIdleConnections()
	links.close()
	return nil
}

// handoverPatience bounds how long a process takes to read values.
const handoverPatience = 10 * time.Second

// HasSecrets reports whether the process that runs has the values of all secrets.
func (e *Egress) HasSecrets() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.child != nil && e.child.hasSecrets && !e.child.isGone()
}

// isGone reports whether the process has ended, also where that was not noticed yet.
func (c *child) isGone() bool {
	select {
	case <-c.gone:
		return true
	default:
	}
	gone := true // if the socket is closed
	control(c.wire.file, func(fd int) {
		state, err := pollfd.Wait(fd, unix.POLLRDHUP, 0)
		gone = err != nil || state != 0
	})
	return gone
}

// GiveSecrets hands the values of the secrets over to the process that runs: a pipe, and a file of
// certificates, which stay the caller's and are not read here. A process that takes its place later
// does not have them. Errors: Unavailable, if there is no process meanwhile.
func (e *Egress) GiveSecrets(values, certificates *os.File) error {
	c, err := e.sendSecrets(values, certificates)
	if err != nil {
		return errdefs.New(errdefs.Unavailable, "egress: hand over secrets: %w", err)
	}
	select {
	case <-c.took:
		return nil
	case <-c.gone:
	case <-time.After(handoverPatience):
	}
	return errdefs.New(errdefs.Unavailable, "egress: the process did not take the secrets")
}

// sendSecrets gives the process that runs the order to take them.
func (e *Egress) sendSecrets(values, certificates *os.File) (*child, error) {
	e.orders.Lock()
	defer e.orders.Unlock()
	e.mu.Lock()
	c := e.child
	e.mu.Unlock()
	if c == nil {
		return nil, errors.New("the process is starting")
	}
	return c, e.tell(c, func() error { return c.wire.send(order{Handover: true}, values, certificates) })
}

// tookSecrets notes that a process has taken values, which may be all.
func (e *Egress) tookSecrets(c *child, all bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.hasSecrets = all
	select {
	case c.took <- struct{}{}:
	default:
	}
}

// wireSecrets are the secrets as a process learns of them.
func (e *Egress) wireSecrets() []wireSecret {
	var list []wireSecret
	for _, s := range e.options.Secrets {
		list = append(list, wireSecret{s.Name, s.Hosts, s.Limits, s.Quota.String(), s.Placeholder})
	}
	return list
}

// secretRule returns how the audit log names what allows a connection to a secret's host.
func (e *Egress) secretRule(h allowlist.Host, port uint16) (rule string, is bool) {
	for _, s := range e.options.Secrets {
		if slices.Contains(s.Hosts, secret.Target{Host: h, Port: port}) {
			return "secret " + s.Name, true
		}
	}
	return "", false
}
