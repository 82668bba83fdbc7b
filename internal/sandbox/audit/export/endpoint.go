package export

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const (
	postTimeout = 10 * time.Second
	maxAnswer   = 64 << 10    // bytes that are read of an answer
	maxAfter    = time.Minute // that a receiver may ask for before it is asked again
)

// Endpoint is where records or alerts are posted.
type Endpoint struct {
	url    *url.URL
	header http.Header
	client *http.Client
}

// EndpointOptions are those of NewEndpoint.
type EndpointOptions struct {
	// URL is https://…, or http://… on this host.
	URL string
	// Header goes with each request. It may hold secrets.
	Header http.Header
	// CA, if not nil, has the PEM certificates of the authorities to trust in place of the
	// system's.
	CA []byte
}

// NewEndpoint checks o. path is taken if the URL has none. Errors: Invalid. No error and no log
// shows more of the URL than its host, as the rest may be a secret.
func NewEndpoint(o EndpointOptions, path string) (*Endpoint, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http":
		return nil, errdefs.New(errdefs.Invalid, "malformed URL: want https://HOST[:PORT][/PATH]")
	case u.User != nil:
		return nil, errdefs.New(errdefs.Invalid, "the URL of %s has a user or password: give a header instead", u.Host)
	case u.Scheme == "http" && !isThisHost(u.Hostname()):
		return nil, errdefs.New(errdefs.Invalid, "http://%s would send the records unprotected to another host: use https", u.Host)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = path
	}
	roots, err := rootsOf(o.CA)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	transport.MaxResponseHeaderBytes = maxAnswer
	return &Endpoint{url: u, header: o.Header, client: &http.Client{
		Transport: transport, Timeout: postTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func isThisHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

func rootsOf(ca []byte) (*x509.CertPool, error) {
	if ca == nil {
		return nil, nil //nolint:nilnil // the system's
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errdefs.New(errdefs.Invalid, "the file of authorities has no PEM certificate")
	}
	return roots, nil
}

// Host names the endpoint for people.
func (e *Endpoint) Host() string { return e.url.Host }

// Close closes the connections that are idle.
func (e *Endpoint) Close() { e.client.CloseIdleConnections() }

// later is an error of a receiver that may be asked again after a time.
type later struct {
	error
	after time.Duration // 0: it did not say
}

func (l later) Unwrap() error { return l.error }

// post posts JSON and returns the answer. Errors: Unavailable if it may be posted again later,
// as a later; another one is for good.
func (e *Endpoint) post(ctx context.Context, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url.String(), bytes.NewReader(body))
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "post to %s: malformed URL", e.Host())
	}
	if e.header != nil {
		request.Header = e.header.Clone()
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := e.client.Do(request)
	if err != nil {
		return nil, later{error: errdefs.New(errdefs.Unavailable, "post to %s: %w", e.Host(), withoutURL(err))}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode/100 == 2 && err == nil:
		return text, nil
	case answer.StatusCode/100 == 2:
		return nil, nil // it took the records; what it says about them is cut
	case mayRetry(answer.StatusCode):
		return nil, later{errdefs.New(errdefs.Unavailable, "post to %s: %s", e.Host(), statusText(answer)), afterOf(answer)}
	}
	return nil, errdefs.New(errdefs.Precondition, "post to %s: %s", e.Host(), statusText(answer))
}

// mayRetry reports whether a status is of a passing trouble (OTLP specification, "Retryable
// Response Codes").
func mayRetry(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// statusText is the answer's number with our words for it: those of the receiver go to no log.
func statusText(answer *http.Response) string {
	text := "HTTP " + strconv.Itoa(answer.StatusCode)
	if words := http.StatusText(answer.StatusCode); words != "" {
		text += " " + strings.ToLower(words)
	}
	if answer.StatusCode/100 == 3 {
		text += ": redirects are not followed"
	}
	return text
}

func afterOf(answer *http.Response) time.Duration {
	seconds, err := strconv.ParseInt(answer.Header.Get("Retry-After"), 10, 32)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxAfter)
}

// withoutURL is an error of the client without the URL, which may hold a secret.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// ParseHeader reads the text of a file of headers: NAME: VALUE on each line. Empty lines, and
// lines that begin with #, are skipped. Errors: Invalid; they do not show a value.
func ParseHeader(text []byte) (http.Header, error) {
	header := http.Header{}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if !found {
			return nil, errdefs.New(errdefs.Invalid, "line %d: want NAME: VALUE", i+1)
		}
		if err := addHeader(header, name, strings.TrimSpace(value)); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "line %d: %w", i+1, err)
		}
	}
	return header, nil
}

func addHeader(header http.Header, name, value string) error {
	isName := func(c rune) bool {
		return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isName(c) }):
		return errdefs.New(errdefs.Invalid, "malformed name of a header")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return errdefs.New(errdefs.Invalid, "header %s: its value has control characters", name)
	}
	header.Add(name, value)
	return nil
}

// ParseHeaderVariable reads NAME=VALUE,…, values with percent escapes, as
// OTEL_EXPORTER_OTLP_HEADERS has it. Errors: Invalid; they do not show a value.
func ParseHeaderVariable(text string) (http.Header, error) {
	header := http.Header{}
	for entry := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(entry) == "" {
			continue
		}
		name, value, found := strings.Cut(entry, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil {
			return nil, errdefs.New(errdefs.Invalid, "want NAME=VALUE,…")
		}
		if err := addHeader(header, strings.TrimSpace(name), value); err != nil {
			return nil, err
		}
	}
	return header, nil
}
