// Package secretproxy is where a program inside a sandbox reaches a host that gets a secret: what
// package webproxy passes on is changed here on its way.
//
// It puts the value in the place of the placeholder, in the header fields and parameters for
// credentials and nowhere else, and takes out every other credential that the program sends. What
// the host answers is searched for the value. The package keeps no value: it is the caller's.
package secretproxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
)

// Proxy serves one host of a secret to one connection of a program. It is a webproxy.Filter.
type Proxy struct {
	Name string // of the secret
	// Inside is the host's name inside; "" where a program calls it by its own, and knows itself
	// how to show a credential.
	Inside      allowlist.Host
	Target      secret.Target
	Placeholder string
	Limits      []allowlist.Limit
	// Value is "" while there is none.
	Value string
	// Quota says how much may be used; nil: anything.
	Quota Quota
	// Masker knows all values of the sandbox.
	Masker *secret.Masker
	// Transport, Refused and Explain are those of webproxy.Proxy. Refused is told of
	// credentials that were taken out, too.
	Transport http.RoundTripper
	Refused   func(reason string)
	Explain   func(error) string
}

// Web returns what answers the requests to the host's name inside, without TLS.
func (p *Proxy) Web() *webproxy.Proxy {
	return &webproxy.Proxy{
		IsHost: p.isOurs, Scheme: p.scheme(), Authority: p.Authority(), Limits: []webproxy.Limits{p.Limit()},
		Transport: p.Transport, Refused: p.Refused, Explain: p.Explain, Filter: p,
	}
}

// Limit is what --secret-allow says.
func (p *Proxy) Limit() webproxy.Limits {
	return webproxy.Limits{Allow: p.Limits, Option: "--secret-allow", Of: p.Name}
}

// Check refuses requests while there is no value, and those beyond the limits.
func (p *Proxy) Check(r *http.Request) (status int, reason string) {
	if p.Value == "" {
		return http.StatusServiceUnavailable, "no value of secret " + p.Name + " was handed over; the next agentfense exec or run that finds it does that"
	}
	return http.StatusTooManyRequests, p.checkQuota(r)
}

// Text masks values.
func (p *Proxy) Text(text string) string { return p.Masker.Text(text) }

// Writer masks values in the header of an answer.
func (p *Proxy) Writer(w http.ResponseWriter) http.ResponseWriter {
	return &maskedWriter{ResponseWriter: w, masker: p.Masker}
}

// isOurs reports whether HOST[:PORT] is the name inside.
func (p *Proxy) isOurs(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = text, strconv.Itoa(secret.Port)
	}
	name, err := allowlist.ParseName(host)
	return err == nil && name == p.Inside && port == strconv.Itoa(secret.Port)
}

// Request puts the value into a request.
func (p *Proxy) Request(r *httputil.ProxyRequest) {
	query, sent, taken := p.swapQuery(r.Out.URL.RawQuery)
	r.Out.URL.RawQuery = query
	if strings.Join(r.Out.Header["Cookie"], "") != "" {
		taken = append(taken, "Cookie")
	}
	for _, field := range droppedFields {
		r.Out.Header.Del(field)
	}
	r.Out.Header.Set("Accept-Encoding", "identity")
	sent = p.swapProtocols(r.Out.Header) || sent
	if taken = append(taken, p.swap(r.Out.Header, sent)...); len(taken) > 0 {
		p.Refused("a credential of the program's own was taken out: " + strings.Join(taken, ", "))
	}
	p.meterRequest(r.Out)
}

// droppedFields are not sent on. What a part of an answer has cannot be searched, and cookies are
// credentials.
var droppedFields = []string{"Range", "If-Range", "Cookie"}

// scheme is how the host is asked. Only a port of this host's loopback needs no TLS.
func (p *Proxy) scheme() string {
	if p.Target.IsLocal() {
		return "http"
	}
	return "https"
}

// Authority is the host as a request names it.
func (p *Proxy) Authority() string {
	if p.Target.IsLocal() {
		return p.Target.String()
	}
	return strings.TrimSuffix(p.Target.String(), ":"+strconv.Itoa(allowlist.DefaultPort))
}

// Response searches an answer for values. Errors: a webproxy.AnswerError for one that cannot be
// searched.
func (p *Proxy) Response(r *http.Response) error {
	for _, field := range []string{"Set-Cookie", "Strict-Transport-Security"} {
		r.Header.Del(field)
	}
	for _, encoding := range r.Header.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") && r.Body != http.NoBody {
			return webproxy.AnswerError{Reason: "the host compresses its answer, which cannot be searched for the value then"}
		}
	}
	r.Body = &maskedBody{Reader: p.Masker.Reader(p.meterAnswer(r, r.Body)), Closer: r.Body, response: r, masker: p.Masker}
	return nil
}
