package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// guard wraps next in what holds for every request.
func (g *gateway) guard(next http.Handler) http.Handler {
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeError(w, r, denied("the request comes from a page of another origin"))
	}))
	next = origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if hasBody(r) {
			// The server reads what a handler leaves. Where this fails, so does Read.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.o.BodyTimeout))
		}
		if g.o.LoopbackOnly && !isLoopback(r.Host) {
			writeError(w, r, denied("without tokens the server answers only as localhost"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether host, with or without a port, can only mean this
// host.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}
