package egress

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/egress/secretproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/sniff"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const reasonNoAuthority = "no certificates for interception: the sandbox was started without an intercepted host; stop it and start it again"

// interception is what the process needs to open TLS. Its zero value cannot.
type interception struct {
	authority *authority.Authority        // nil: there is none
	config    func() (*tls.Config, error) // towards hosts
}

// begin takes the authority that programs inside trust. roots are the certificates that hosts are
// verified by.
func (i *interception) begin(pair authority.Pair, roots rootsReader) (err error) {
	i.config = clientConfig(roots)
	i.authority, err = authority.Open(pair)
	return err
}

// rootsReader returns the certificates that hosts and proxies are verified by. They are read when
// they are first needed, because that takes longer than the rest of a start.
type rootsReader func() (*x509.CertPool, error)

// takeRoots takes the file of certificates that comes with an order, the last of files, and returns
// the others.
func takeRoots(with bool, files []*os.File) (rootsReader, []*os.File, error) {
	if !with {
		return nil, files, nil
	}
	last := len(files) - 1
	if last < 0 {
		return nil, nil, errdefs.New(errdefs.Internal, "malformed order")
	}
	file := files[last]
	return sync.OnceValues(func() (*x509.CertPool, error) {
		defer file.Close()
		text, err := io.ReadAll(io.NewSectionReader(file, 0, maxRoots))
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(text) // without any, no host can be verified
		return pool, nil
	}), files[:last], nil
}

// beginInterception takes the authority of the first order, if it has one.
func (p *process) beginInterception(pair *authority.Pair, roots rootsReader) error {
	switch {
	case pair == nil:
		return nil
	case roots == nil:
		return errdefs.New(errdefs.Internal, "malformed order")
	}
	return p.interception.begin(*pair, roots)
}

// openTLS opens a connection whose ClientHello was read and names the target, and serves the
// requests in it.
func (c *conn) openTLS(hello []byte) error {
	i := &c.p.interception
	if i.authority == nil {
		return c.refuseTLS(refusal{reasonNoAuthority})
	}
	down := tls.Server(said{c.down, io.MultiReader(bytes.NewReader(hello), c.down)}, &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.authority.Certificate(c.target.host) },
		NextProtos:     []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true,
	})
	defer down.Close()
	if err := down.HandshakeContext(c.ctx); err != nil {
		return handshakeRefusal(err)
	}
	return c.serveRequests(down, true)
}

// handshakeRefusal tells of a handshake that has failed, unless the program just went away.
func handshakeRefusal(err error) error {
	failure := &net.OpError{}
	if errors.As(err, &failure) && failure.Op == "remote error" {
		return refusal{"the program does not accept the certificates of this sandbox: " + failure.Err.Error()}
	}
	if isGone(err) {
		return err
	}
	return refusalOf(err)
}

// said is a connection of which something was read before.
type said struct {
	*net.TCPConn

	r io.Reader
}

func (s said) Read(p []byte) (int, error) { return s.r.Read(p) }

// serveRequests sends the requests of a connection on that the rule allows.
func (c *conn) serveRequests(down net.Conn, secure bool) error {
	if err := c.down.SetDeadline(time.Time{}); err != nil {
		return err
	}
	links := c.newLinks()
	defer links.close()
	web := &webproxy.Proxy{
		IsHost: c.isTarget, Secure: secure, Scheme: "http",
		Limits:  []webproxy.Limits{{Allow: c.rule.Limits(), Option: "--net-allow", Of: c.target.rule().Place()}},
		Refused: c.note, Explain: reasonOf,
	}
	defaultPort := httpPort
	if secure {
		web.Scheme, defaultPort = "https", allowlist.DefaultPort
	}
	web.Authority = strings.TrimSuffix(c.target.rule().Place(), ":"+strconv.Itoa(defaultPort))
	proxy, name, err := c.secretHere(secure)
	switch {
	case err != nil:
		return err
	case proxy != nil:
		proxy.Refused = c.note
		web.Filter = current{func() *secretproxy.Proxy { return c.p.secrets.now(*proxy) }}
		web.Limits = append(web.Limits, proxy.Limit())
	}
	web.Check = func(r *http.Request) string { return c.p.secrets.reasonPlaceholder(textOf(r), name) }
	var config *tls.Config
	if secure {
		if config, err = c.p.interception.config(); err != nil {
			return err
		}
	}
	transport := links.transport(config)
	defer transport.CloseIdleConnections()
	web.Transport = countRequests{transport}
	if over, is := down.(*tls.Conn); !is || over.ConnectionState().NegotiatedProtocol != "h2" {
		down = webproxy.Strict(down, c.p.patience, c.checkHosts, func(err error) { c.note(refusalOf(err).reason) })
	}
	webproxy.Serve(down, web.Handler(), c.p.patience)
	return nil
}

// secretHere returns what puts the secret of the target into requests, nil if there is none.
// Errors: a refusal.
func (c *conn) secretHere(secure bool) (proxy *secretproxy.Proxy, name string, err error) {
	all := c.p.secrets.of(c.target)
	switch {
	case len(all) > 1:
		return nil, "", refusal{"several secrets are for this host: interception can use one"}
	case len(all) == 1 && !secure:
		return nil, "", refusal{"secret " + all[0].Name + " is for this host, over TLS only"}
	case len(all) == 0:
		return nil, "", nil
	}
	all[0].Refused = c.note
	return &all[0], all[0].Name, nil
}

// note reports that a request was refused.
func (c *conn) note(reason string) { c.p.denials.note(string(c.target.host), c.target.port, reason, 1) }

// reasonOf returns the reason of an error that is a refusal, else "".
func reasonOf(err error) string {
	if r, is := errors.AsType[refusal](err); is {
		return r.reason
	}
	return ""
}

// textOf is the head of a request as far as a program chooses it.
func textOf(r *http.Request) string {
	var text strings.Builder
	text.WriteString(r.URL.String())
	for name, values := range r.Header {
		text.WriteString("\n" + name + ": " + strings.Join(values, "\n"))
	}
	return text.String()
}

// checkHosts refuses a request that names another host.
func (c *conn) checkHosts(q *sniff.Request) error {
	for _, text := range q.Hosts {
		if !c.isTarget(text) {
			return errors.New("HTTP names another host: " + strconv.Quote(clip(text)))
		}
	}
	return nil
}

// rule is that which allows t.
func (t target) rule() allowlist.Rule { return allowlist.Rule{Host: t.host, Port: t.port} }
