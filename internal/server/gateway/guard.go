package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// guard wraps next with the checks of every request.
func (g *gateway) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, denied("the request is from a page of another origin"))
	}))
	next = origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if hasBody(r) {
			// The server reads what the handler leaves of the body. If this fails, Read fails too.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.o.BodyTimeout))
		}
		if g.o.LoopbackOnly && !isLoopback(r.Host) {
			writeError(w, r, denied("without tokens the server accepts only localhost as its name"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether host, with or without a port, always means this host.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}
