// Package forwardproxy is the HTTP proxy by which the host of a sandbox reaches others, as the
// environment of the caller names it: which targets it is for, and how it is asked to connect to
// one (CONNECT). No error and no text of this package has the credentials of a proxy.
package forwardproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Settings are the proxies as an environment names them. They may have credentials.
type Settings struct {
	HTTPS string `json:"https,omitempty"` // for all ports but 80
	HTTP  string `json:"http,omitempty"`  // for port 80
	No    string `json:"no,omitempty"`    // NO_PROXY
}

// FromEnvironment reads HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, or their names in lower
// case.
func FromEnvironment(getenv func(string) string) Settings {
	either := func(name string) string {
		if v := getenv(name); v != "" {
			return v
		}
		return getenv(strings.ToLower(name))
	}
	s := Settings{HTTPS: either("HTTPS_PROXY"), HTTP: either("HTTP_PROXY"), No: either("NO_PROXY")}
	all := either("ALL_PROXY")
	if s.HTTPS == "" {
		s.HTTPS = all
	}
	if s.HTTP == "" {
		s.HTTP = all
	}
	return s
}

// IsZero reports whether there is no proxy.
func (s Settings) IsZero() bool { return s.HTTPS == "" && s.HTTP == "" }

// Proxy is one proxy.
type Proxy struct {
	Host   string // a name or an address
	Port   uint16
	Secure bool // it is asked over TLS

	credentials string // of Proxy-Authorization
}

// Place returns HOST:PORT.
func (p *Proxy) Place() string { return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port))) }

// Table says which targets are reached by which proxy.
type Table struct {
	choose  func(*url.URL) (*url.URL, error)
	proxies map[string]*Proxy // by URL
}

// Parse reads settings. Errors: Invalid.
func Parse(s Settings) (*Table, error) {
	t := &Table{proxies: map[string]*Proxy{}}
	config := httpproxy.Config{NoProxy: s.No}
	var err error
	if config.HTTPSProxy, err = t.add("HTTPS_PROXY (or ALL_PROXY)", s.HTTPS); err != nil {
		return nil, err
	}
	if config.HTTPProxy, err = t.add("HTTP_PROXY (or ALL_PROXY)", s.HTTP); err != nil {
		return nil, err
	}
	t.choose = config.ProxyFunc()
	return t, nil
}

// add reads the URL of a proxy, and returns it in the form that choose returns.
func (t *Table) add(variable, text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return "", errdefs.New(errdefs.Invalid, "the proxy that %s names: want http://[USER:PASSWORD@]HOST[:PORT] or https://…; agentfense reaches hosts by HTTP CONNECT only", variable)
	}
	p := &Proxy{Host: strings.ToLower(u.Hostname()), Port: 80, Secure: u.Scheme == "https"}
	if p.Secure {
		p.Port = 443
	}
	if u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || n == 0 {
			return "", errdefs.New(errdefs.Invalid, "the proxy that %s names: want a port from 1 to 65535", variable)
		}
		p.Port = uint16(n)
	}
	if u.User != nil {
		password, _ := u.User.Password()
		p.credentials = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	t.proxies[u.String()] = p
	return u.String(), nil
}

// For returns the proxy for a target, nil if it is reached directly. A nil Table has no proxy.
func (t *Table) For(host string, port uint16) *Proxy {
	if t == nil {
		return nil
	}
	const plainHTTP = 80
	target := &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	if port == plainHTTP {
		target.Scheme = "http"
	}
	u, err := t.choose(target)
	if err != nil || u == nil {
		return nil // Parse has read them
	}
	return t.proxies[u.String()]
}

// All returns the proxies.
func (t *Table) All() []*Proxy {
	if t == nil {
		return nil
	}
	all := make([]*Proxy, 0, len(t.proxies))
	for _, p := range t.proxies {
		all = append(all, p)
	}
	return all
}

// NeedsRoots reports whether a proxy speaks TLS.
func (t *Table) NeedsRoots() bool {
	return slices.ContainsFunc(t.All(), func(p *Proxy) bool { return p.Secure })
}

// Refused is the answer of a proxy that does not connect.
type Refused struct {
	Proxy  string // HOST:PORT
	Status int
}

func (e Refused) Error() string {
	text := fmt.Sprintf("the proxy %s answers %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusProxyAuthRequired {
		text += ": it wants other credentials in the URL of HTTPS_PROXY"
	}
	return text
}

// WantsName reports whether a proxy may connect to the name of a host of which it refused the
// address.
func (e Refused) WantsName() bool {
	return e.Status >= 400 && e.Status < 500 && e.Status != http.StatusProxyAuthRequired
}

// maxHead bounds the answer of a proxy, in bytes.
const maxHead = 16 << 10

// Connect has the proxy that c leads to connect to HOST:PORT, and returns the connection there.
// roots verify a proxy that speaks TLS. c stays the caller's if there is an error. Errors: Refused.
func (p *Proxy) Connect(ctx context.Context, c net.Conn, target string, roots *x509.CertPool) (net.Conn, error) {
	if deadline, limited := ctx.Deadline(); limited {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) }) // at once
	defer stop()
	to := c
	if p.Secure {
		over := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: p.Host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("the proxy %s: %w", p.Place(), err)
		}
		to = over
	}
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if p.credentials != "" {
		request += "Proxy-Authorization: " + p.credentials + "\r\n"
	}
	if _, err := io.WriteString(to, request+"\r\n"); err != nil {
		return nil, fmt.Errorf("the proxy %s: %w", p.Place(), err)
	}
	status, err := readStatus(to)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the proxy %s: %w", p.Place(), err)
	case status < 200 || status > 299:
		return nil, Refused{p.Place(), status}
	}
	return to, c.SetDeadline(time.Time{})
}

// readStatus reads the head of an answer, and nothing behind it: that is the target's.
func readStatus(r io.Reader) (int, error) {
	var head []byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) >= maxHead {
			return 0, errdefs.New(errdefs.Unavailable, "its answer is too long")
		}
		var one [1]byte
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return 0, err
		}
		head = append(head, one[0])
	}
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return 0, errdefs.New(errdefs.Unavailable, "its answer is not HTTP")
	}
	answer.Body.Close()
	return answer.StatusCode, nil
}
