package mcpserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Path is the only one that is served over HTTP.
const Path = "/mcp"

// The bounds of HTTP.
const (
	headerTimeout = 10 * time.Second
	sessionIdle   = time.Hour
	endTimeout    = 2 * time.Second
)

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, server *mcp.Server, o *Options) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.HTTP)
	if err != nil {
		return errdefs.New(errdefs.Unavailable, "--http %s: %w", o.HTTP, err)
	}
	address := listener.Addr().String()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		MaxRequestBodyBytes: maxMessageBytes, SessionTimeout: sessionIdle,
	})
	h := &http.Server{Handler: guarded(handler, o.Token), ReadHeaderTimeout: headerTimeout}
	defer context.AfterFunc(ctx, func() {
		// Streams of sessions stay open: they are cut after a moment.
		end, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		_ = h.Shutdown(end)
		_ = h.Close()
	})()
	o.Ready(address)
	if err := h.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return errdefs.New(errdefs.Unavailable, "--http %s: %w", o.HTTP, err)
	}
	return nil
}

// guarded refuses whoever does not show the token, and every request of a web page: a browser sends
// the page's origin, and the name by which the page reached us (DNS rebinding).
func guarded(next http.Handler, token string) http.Handler {
	want := []byte("Bearer " + token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origins := r.Header.Values("Origin")
		switch {
		case !isLoopback(r.Host):
			http.Error(w, "the Host header does not name this host's loopback address", http.StatusForbidden)
		case len(origins) > 1 || len(origins) == 1 && !strings.EqualFold(origins[0], "http://"+r.Host):
			http.Error(w, "requests of web pages are refused", http.StatusForbidden)
		case subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, `want "Authorization: Bearer TOKEN"`, http.StatusUnauthorized)
		case r.URL.Path != Path:
			http.NotFound(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLoopback reports whether host, with or without a port, always means this host.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}
