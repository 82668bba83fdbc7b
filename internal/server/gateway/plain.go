package gateway

import (
	"io"
	"net/http"
)

// healthz says that the process serves.
func (g *gateway) healthz(w http.ResponseWriter, _ *http.Request) {
	ok(w)
}

// readyz says whether the server takes work. Why not is in the log: who asks
// has shown no token.
func (g *gateway) readyz(w http.ResponseWriter, r *http.Request) {
	if g.o.Ready != nil {
		if err := g.o.Ready(r.Context()); err != nil {
			g.o.Log.WarnContext(r.Context(), "not ready", "reason", err)
			writeError(w, r, notReady())
			return
		}
	}
	ok(w)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

func (g *gateway) describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(g.openAPI)
}
