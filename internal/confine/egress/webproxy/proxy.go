// Package webproxy is where the egress process sees a program's requests: a reverse proxy in front
// of one host, which sends on what is allowed and refuses the rest with a reason.
//
// To the program it speaks HTTP/1.1 and HTTP/2. Redirects are passed on and not followed; CONNECT,
// TRACE and changes of protocol other than to a WebSocket are refused. The package dials nothing by
// itself. Package secretproxy puts secrets into what passes here.
package webproxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// Proxy serves one host to one connection of a program.
type Proxy struct {
	// IsHost reports whether HOST[:PORT] of a request is the host, as the program calls it.
	IsHost func(text string) bool
	// Secure says whether the program speaks TLS.
	Secure bool
	// Scheme and Authority are where requests are sent: https, and HOST or HOST:PORT.
	Scheme, Authority string
	Limits            []Limits
	// Transport does what http.Transport does.
	Transport http.RoundTripper
	// Refused is told why a request is not sent on.
	Refused func(reason string)
	// Explain returns the reason of an error of Transport that is a refusal, else "".
	Explain func(error) string
	// Check, if set, returns why a request that is allowed otherwise is not sent on, else "".
	Check func(*http.Request) string
	// Filter, if set, sees all that passes.
	Filter Filter
}

// Limits are the requests that an option allows; none: all.
type Limits struct {
	Allow []allowlist.Limit
	// Option and Of name the option as a person gives it: OPTION 'OF=METHOD PATH'.
	Option, Of string
}

// A Filter changes what passes.
type Filter interface {
	// Check returns why a request that is allowed otherwise is not sent on; "": it is.
	Check(*http.Request) (status int, reason string)
	// Request changes the request for the host, and Response what it answers. An error of the
	// latter that is an AnswerError is told to the program.
	Request(*httputil.ProxyRequest)
	Response(*http.Response) error
	// Stream is what follows an answer by which the host agrees to a WebSocket.
	Stream(*http.Response, io.ReadWriteCloser) io.ReadWriteCloser
	// Writer is what takes the answer to the program, and Text what is told to it.
	Writer(http.ResponseWriter) http.ResponseWriter
	Text(text string) string
}

// AnswerError says why an answer cannot be passed on.
type AnswerError struct{ Reason string }

func (e AnswerError) Error() string { return e.Reason }

// LimitError says which limit ends a request.
type LimitError struct{ Reason string }

func (e LimitError) Error() string { return e.Reason }

// noLog takes what net/http would say: it may be about secrets.
var noLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// Handler returns what answers the requests.
func (p *Proxy) Handler() http.Handler {
	reverse := &httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.receive, ErrorHandler: p.fail,
		Transport: p.Transport, FlushInterval: -1, ErrorLog: noLog,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status, reason, advice := p.check(r); reason != "" {
			p.refuse(w, status, reason, advice)
			return
		}
		if p.Filter != nil {
			w = p.Filter.Writer(w)
		}
		reverse.ServeHTTP(w, r)
	})
}

// overrides are header fields by which some servers take another method than that of the request.
var overrides = []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"}

// check returns why a request is not sent on, and what the program is told besides.
func (p *Proxy) check(r *http.Request) (status int, reason, advice string) {
	switch {
	case r.Method == http.MethodConnect, r.Method == http.MethodTrace:
		return http.StatusMethodNotAllowed, "the method " + r.Method, ""
	case !p.names(r):
		return http.StatusForbidden, fmt.Sprintf("HTTP names another host: %q", clip(r.Host)), ""
	case !strings.HasPrefix(r.URL.Path, "/"):
		return http.StatusForbidden, "a request without a path", ""
	case r.Header.Get("Upgrade") != "" && !isWebSocket(r):
		return http.StatusForbidden, "change of protocol (upgrade): what follows could not be checked", ""
	}
	limited := p.Filter != nil
	for _, l := range p.Limits {
		if !allowlist.Allows(l.Allow, r.Method, r.URL) {
			return http.StatusForbidden, l.reason(r), l.advice(r)
		}
		limited = limited || len(l.Allow) > 0
	}
	for _, field := range overrides {
		if limited && r.Header.Get(field) != "" {
			return http.StatusForbidden, "the header field " + field, ""
		}
	}
	if p.Check != nil {
		if reason := p.Check(r); reason != "" {
			return http.StatusForbidden, reason, ""
		}
	}
	if p.Filter != nil {
		status, reason = p.Filter.Check(r)
	}
	return status, reason, ""
}

// names reports whether a request names the host wherever it names one.
func (p *Proxy) names(r *http.Request) bool {
	scheme := "http"
	if p.Secure {
		scheme = "https"
	}
	for _, host := range append(r.Header.Values("Host"), r.Host) {
		if !p.IsHost(host) {
			return false
		}
	}
	return (r.URL.Host == "" || p.IsHost(r.URL.Host)) && (r.URL.Scheme == "" || r.URL.Scheme == scheme)
}

func (l Limits) reason(r *http.Request) string {
	return fmt.Sprintf("%s %s is not allowed by %s of %s", clip(r.Method), clip(strconv.QuoteToASCII(r.URL.EscapedPath())), l.Option, l.Of)
}

// advice says which option would allow a request.
func (l Limits) advice(r *http.Request) string {
	path := r.URL.EscapedPath()
	if !allowlist.IsPlain(path) {
		return "its path can be read in more than one way, which only a pattern of all paths allows: /**"
	}
	if limit, err := allowlist.ParseRequests(r.Method + " " + path); err == nil {
		return fmt.Sprintf("it needs %s '%s=%s'", l.Option, l.Of, limit)
	}
	return ""
}

func (p *Proxy) refuse(w http.ResponseWriter, status int, reason, advice string) {
	p.Refused(reason)
	w.Header().Set("Connection", "close") // what is allowed later is for the next connection
	if advice != "" {
		reason += "; " + advice
	}
	p.answer(w, status, reason)
}

// answer tells the program what happened.
func (p *Proxy) answer(w http.ResponseWriter, status int, text string) {
	text = "agentfense: " + text + "\n"
	if p.Filter != nil {
		text = p.Filter.Text(text)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) //nolint:gosec // plain text; the program may have gone
}

// rewrite makes the request for the host.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = p.Scheme, p.Authority, p.Authority
	if _, sent := r.Out.Header["User-Agent"]; !sent {
		r.Out.Header["User-Agent"] = nil // else Go's own
	}
	if isWebSocket(r.In) {
		r.Out.Header.Del("Sec-Websocket-Extensions") // frames stay as they are
	}
	if p.Filter != nil {
		p.Filter.Request(r)
		return
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it was sent
}

// receive takes out of an answer what would lead past this proxy.
func (p *Proxy) receive(r *http.Response) error {
	r.Header.Del("Alt-Svc")
	switch asked := isWebSocket(r.Request); {
	case r.StatusCode == http.StatusSwitchingProtocols && asked:
		return p.agree(r)
	case r.StatusCode == http.StatusSwitchingProtocols:
		return AnswerError{"the host changes the protocol"}
	case asked:
		r.Header.Set("Connection", "close") // Strict passes on no further request
	}
	if p.Filter != nil {
		return p.Filter.Response(r)
	}
	return nil
}

// fail tells the program of a request that got no answer that could be passed on.
func (p *Proxy) fail(w http.ResponseWriter, _ *http.Request, err error) {
	if reason := p.Explain(err); reason != "" {
		p.refuse(w, http.StatusForbidden, reason, "")
		return
	}
	if limit, is := errors.AsType[LimitError](err); is {
		p.refuse(w, http.StatusTooManyRequests, limit.Reason, "")
		return
	}
	certificate := &tls.CertificateVerificationError{}
	if errors.As(err, &AnswerError{}) || errors.As(err, &certificate) {
		reason := err.Error()
		if p.Filter != nil {
			reason = p.Filter.Text(reason)
		}
		p.refuse(w, http.StatusBadGateway, reason, "")
		return
	}
	w.Header().Set("Connection", "close")
	p.answer(w, http.StatusBadGateway, p.Authority+" gave no answer") // more would tell of this host's network
}

// clip bounds what a program sent.
func clip(text string) string { return text[:min(len(text), maxClip)] }

const maxClip = 100
