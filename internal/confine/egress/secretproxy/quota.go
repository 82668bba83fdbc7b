package secretproxy

import (
	"context"
	"io"
	"net/http"

	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
)

// Quota says how much of a secret may be used. The reasons are "" where all that was asked for is
// granted.
type Quota interface {
	Request(ctx context.Context) (reason string)
	Sent(ctx context.Context, n int) (granted int, reason string)
	Received(ctx context.Context, n int) (granted int, reason string)
}

// checkQuota takes a request and its head.
func (p *Proxy) checkQuota(r *http.Request) (reason string) {
	if p.Quota == nil {
		return ""
	}
	if reason = p.Quota.Request(r.Context()); reason == "" {
		_, reason = p.Quota.Sent(r.Context(), headSize(r))
	}
	return reason
}

// headSize is how much of a request's head a program can choose, in bytes.
func headSize(r *http.Request) int {
	n := len(r.Method) + len(r.URL.String())
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// metered passes on what a limit lets pass.
type metered struct {
	from io.Reader
	take func(n int) (granted int, reason string)
	told func(reason string) // nil: the reader of the error does that
}

// Read reads. Errors: a webproxy.LimitError.
func (m metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	if n == 0 {
		return n, err
	}
	granted, reason := m.take(n)
	if reason == "" {
		return n, err
	}
	if m.told != nil {
		m.told(reason)
	}
	return granted, webproxy.LimitError{Reason: reason}
}

// meterRequest counts the body of a request.
func (p *Proxy) meterRequest(r *http.Request) {
	if p.Quota == nil || r.Body == nil || r.Body == http.NoBody {
		return
	}
	take := func(n int) (int, string) { return p.Quota.Sent(r.Context(), n) }
	r.Body = both{metered{from: r.Body, take: take}, r.Body}
}

// meterAnswer counts the body of an answer, of which the head has been passed on.
func (p *Proxy) meterAnswer(r *http.Response, body io.Reader) io.Reader {
	if p.Quota == nil {
		return body
	}
	ctx := r.Request.Context()
	return metered{from: body, told: p.Refused, take: func(n int) (int, string) { return p.Quota.Received(ctx, n) }}
}

type both struct {
	io.Reader
	io.Closer
}
