// Package secretproxy is where a program inside a sandbox reaches a host that gets a secret: a
// reverse proxy that speaks HTTP/1.1 to the program and verified TLS to the host.
//
// It puts the value in the place of the placeholder, in the header fields and parameters for
// credentials and nowhere else, and takes out every other credential that the program sends. What
// the host answers is searched for the value. Redirects are passed on and not followed. The package
// dials nothing by itself, and keeps no value: both are the caller's.
package secretproxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// Proxy serves one host of a secret to one connection of a program.
type Proxy struct {
	Name        string         // of the secret
	Inside      allowlist.Host // the host's name inside
	Target      secret.Target
	Placeholder string
	Limits      []secret.Limit
	// Value is "" while there is none.
	Value string
	// Masker knows all values of the sandbox.
	Masker *secret.Masker
	// Transport does what http.Transport does.
	Transport http.RoundTripper
	// Refused is told why a request is not sent on.
	Refused func(reason string)
	// Explain returns the reason of an error of Transport that is a refusal, else "".
	Explain func(error) string
}

// noLog takes what net/http would say: it may be about values.
var noLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// Handler returns what answers the requests.
func (p *Proxy) Handler() http.Handler {
	reverse := &httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.receive, ErrorHandler: p.fail,
		Transport: p.Transport, FlushInterval: -1, ErrorLog: noLog,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, reason := p.check(r); reason != "" {
			p.refuse(w, status, reason)
			return
		}
		reverse.ServeHTTP(&maskedWriter{ResponseWriter: w, masker: p.Masker}, r)
	})
}

// overrides are header fields by which some servers take another method than that of the request.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// check returns why a request is not sent on.
func (p *Proxy) check(r *http.Request) (status int, reason string) {
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, "the method " + r.Method
	case !p.isOurs(r.Host), r.URL.Host != "" && !p.isOurs(r.URL.Host), r.URL.Scheme != "" && r.URL.Scheme != "http":
		return http.StatusForbidden, fmt.Sprintf("HTTP names another host: %q", clip(r.Host))
	case !strings.HasPrefix(r.URL.Path, "/"):
		return http.StatusForbidden, "a request without a path"
	case r.Header.Get("Upgrade") != "":
		return http.StatusForbidden, "change of protocol (upgrade): its answers cannot be searched for the value"
	case !secret.Allows(p.Limits, r.Method, r.URL):
		return http.StatusForbidden, fmt.Sprintf("%s %s is not allowed by --secret-allow of %s", clip(r.Method), clip(strconv.QuoteToASCII(r.URL.Path)), p.Name)
	case p.Value == "":
		return http.StatusServiceUnavailable, "no value of secret " + p.Name + " was handed over; the next agentfense exec or run that finds it does that"
	}
	for _, field := range overrides {
		if r.Header.Get(field) != "" {
			return http.StatusForbidden, "the header field " + field
		}
	}
	return 0, ""
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

func (p *Proxy) refuse(w http.ResponseWriter, status int, reason string) {
	p.Refused(reason)
	w.Header().Set("Connection", "close") // a value that comes later is for the next connection
	p.answer(w, status, reason)
}

// answer tells the program what happened.
func (p *Proxy) answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(p.Masker.Text("agentfense: " + text + "\n"))) //nolint:gosec // plain text; the program may have gone
}

// rewrite makes the request for the host.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(&url.URL{Scheme: "https", Host: p.authority()})
	r.Out.Host = p.authority()
	for _, field := range droppedFields {
		r.Out.Header.Del(field)
	}
	r.Out.Header.Set("Accept-Encoding", "identity")
	if _, sent := r.Out.Header["User-Agent"]; !sent {
		r.Out.Header["User-Agent"] = nil // else Go's own
	}
	var sent bool
	r.Out.URL.RawQuery, sent = p.swapQuery(r.Out.URL.RawQuery)
	p.swap(r.Out.Header, sent)
}

// droppedFields are not sent on. What a part of an answer has cannot be searched, and cookies are
// credentials.
var droppedFields = []string{"Range", "If-Range", "Cookie"}

// authority is the host as a request names it.
func (p *Proxy) authority() string {
	return strings.TrimSuffix(p.Target.String(), ":"+strconv.Itoa(allowlist.DefaultPort))
}

// errEncoded is of an answer that cannot be searched.
var errEncoded = errors.New("the host compresses its answer, which cannot be searched for the value then")

// receive searches an answer for values.
func (p *Proxy) receive(r *http.Response) error {
	for _, field := range []string{"Set-Cookie", "Alt-Svc", "Strict-Transport-Security"} {
		r.Header.Del(field)
	}
	if r.StatusCode == http.StatusSwitchingProtocols {
		return errors.New("the host changes the protocol")
	}
	for _, encoding := range r.Header.Values("Content-Encoding") {
		if encoding != "" && !strings.EqualFold(encoding, "identity") && r.Body != http.NoBody {
			return errEncoded
		}
	}
	r.Body = &maskedBody{Reader: p.Masker.Reader(r.Body), Closer: r.Body, response: r, masker: p.Masker}
	return nil
}

// fail tells the program of a request that got no answer that could be passed on.
func (p *Proxy) fail(w http.ResponseWriter, _ *http.Request, err error) {
	if reason := p.Explain(err); reason != "" {
		p.refuse(w, http.StatusForbidden, reason)
		return
	}
	certificate := &tls.CertificateVerificationError{}
	if errors.Is(err, errEncoded) || errors.As(err, &certificate) {
		p.refuse(w, http.StatusBadGateway, p.Masker.Text(err.Error()))
		return
	}
	p.answer(w, http.StatusBadGateway, p.authority()+" gave no answer") // more would tell of this host's network
}

// clip bounds what a program sent.
func clip(text string) string { return text[:min(len(text), maxClip)] }

const maxClip = 100
