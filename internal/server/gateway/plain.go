package gateway

import (
	"io"
	"net/http"
)

// healthz reports that the process serves.
func (g *gateway) healthz(w http.ResponseWriter, _ *http.Request) {
	ok(w)
}

// readyz reports whether the server is ready. The reason is only in the log, because the request
// has no credentials.
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
