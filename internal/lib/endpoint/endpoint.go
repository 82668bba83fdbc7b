// Package endpoint is the address of a server, with credentials. Package endpoint/dial connects.
package endpoint

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// DefaultPort is the default port of server.grpc_addr.
const DefaultPort = "9000"

// Endpoint is the address of a server and how to connect to it.
type Endpoint struct {
	Unix string // absolute path of a socket; "" for a network address
	Host string
	Port string
	TLS  bool
	// CA, Cert and Key are PEM files, "" for none: the authority that signed the
	// server's certificate, the client's certificate and its key.
	CA, Cert, Key string
	// Token is the client's token; "" for none. TokenFrom says, for people, where it is from.
	Token, TokenFrom string
	// VerifyListener identifies the listener at the endpoint. Package dial calls it
	// before and after it makes each connection, because another process may have taken
	// the port. nil means no check.
	VerifyListener func() (listener string, err error)
}

// Guard sets VerifyListener unless the connection itself identifies the server: TLS
// does by a certificate, a unix socket by its path.
func (e *Endpoint) Guard(verify func() (listener string, err error)) {
	if e.Unix == "" && !e.TLS {
		e.VerifyListener = verify
	}
}

// Files are the PEM files of an Endpoint.
type Files struct {
	CA, Cert, Key string
}

// Parse reads host:port, http://, https:// or unix:///path. Without a scheme it uses TLS if a file
// for TLS is given, or for another host; without a port, DefaultPort. Errors: Invalid.
func Parse(text string, files Files) (Endpoint, error) {
	e := Endpoint{CA: files.CA, Cert: files.Cert, Key: files.Key}
	scheme, rest, given := strings.Cut(text, "://")
	if !given {
		scheme, rest = "", text
	}
	var why string
	switch scheme {
	case "unix":
		why = e.setSocket(rest)
	case "", "http", "https":
		why = e.setHost(scheme, strings.TrimSuffix(rest, "/"))
	default:
		why = wantForms
	}
	if why != "" {
		return Endpoint{}, errdefs.New(errdefs.Invalid, "endpoint %s: %s", vpath.Quote(text), why)
	}
	return e, nil
}

const wantForms = "want HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:///PATH"

// hasFiles reports whether files for TLS are given.
func (e *Endpoint) hasFiles() bool { return e.CA != "" || e.Cert != "" || e.Key != "" }

// setSocket sets the path of a socket, or returns what is wrong with it.
func (e *Endpoint) setSocket(path string) (why string) {
	switch {
	case !filepath.IsAbs(path) || strings.ContainsRune(path, 0):
		return "a socket is named by an absolute path, such as unix:///run/agentfense.sock"
	case e.hasFiles():
		return "TLS is not spoken over a socket of this host"
	}
	e.Unix = filepath.Clean(path)
	return ""
}

// setHost sets a network address, or returns what is wrong with it.
func (e *Endpoint) setHost(scheme, address string) (why string) {
	var ok bool
	if e.Host, e.Port, ok = splitHost(address); !ok {
		return wantForms
	}
	e.TLS = scheme == "https" || scheme == "" && (e.hasFiles() || !e.IsLocal())
	switch {
	case (e.Cert == "") != (e.Key == ""):
		return "a client certificate needs its key: give both (--tls-cert, --tls-key)"
	case !e.TLS && e.hasFiles():
		return "http:// speaks no TLS, and a file for TLS is given: want https://"
	case !e.TLS && !e.IsLocal():
		return "without TLS anybody on the way could read the token: want https://"
	}
	return ""
}

// splitHost reads HOST, HOST:PORT or [HOST]:PORT.
func splitHost(text string) (host, port string, ok bool) {
	u, err := url.Parse("//" + text)
	if err != nil || u.Host != text || u.Hostname() == "" {
		return "", "", false
	}
	if port = u.Port(); port == "" {
		port = DefaultPort
	}
	if strings.ContainsRune(u.Hostname(), ':') {
		if _, err := netip.ParseAddr(u.Hostname()); err != nil {
			return "", "", false
		}
	}
	return u.Hostname(), port, true
}

// IsLocal reports whether only this host can answer at the address.
func (e Endpoint) IsLocal() bool {
	if e.Unix != "" || e.Host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(e.Host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Address returns the address to dial: a path or host:port.
func (e Endpoint) Address() string {
	if e.Unix != "" {
		return e.Unix
	}
	return net.JoinHostPort(e.Host, e.Port)
}

// String returns the endpoint in the form that Parse reads.
func (e Endpoint) String() string {
	switch {
	case e.Unix != "":
		return "unix://" + e.Unix
	case e.TLS:
		return "https://" + e.Address()
	}
	return "http://" + e.Address()
}
