package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// methods are the handlers of one path.
type methods map[string]http.HandlerFunc

func (m methods) serve(w http.ResponseWriter, r *http.Request) {
	if h, ok := m[r.Method]; ok {
		h(w, r)
		return
	}
	var allowed []string
	for method := range m {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeError(w, r, wrongMethod())
}

func readOnly(h http.HandlerFunc) methods {
	return methods{http.MethodGet: h, http.MethodHead: h}
}

// serve finds the handler of a request. It never cleans the path: the service decides about ".." in
// the path of a file, and elsewhere ".." is an unknown id.
func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz":
		readOnly(g.healthz).serve(w, r)
	case "/readyz":
		readOnly(g.readyz).serve(w, r)
	case "/metrics":
		readOnly(g.metrics.ServeHTTP).serve(w, r)
	case "/openapi.json":
		readOnly(g.describe).serve(w, r)
	default:
		g.serveAPI(w, r)
	}
}

func (g *gateway) serveAPI(w http.ResponseWriter, r *http.Request) {
	p, err := parsePath(r.URL)
	if err == nil {
		err = checkQuery(r.URL)
	}
	if err == nil {
		err = checkAuthorization(r.Header)
	}
	if err == nil {
		err = g.admit(w, r)
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	if h := g.handwritten(p); h != nil {
		h.serve(w, r)
		return
	}
	g.boundBody(w, r, g.o.MaxBodyBytes)
	g.mux.ServeHTTP(w, r)
}

// path is the path of a request, its elements unescaped.
type path struct {
	elements []string
	// The path of a file of a codebase, if the request has one.
	file   string
	isFile bool
}

// is reports whether p has these elements; "*" matches any element.
func (p path) is(elements ...string) bool {
	return slices.EqualFunc(p.elements, elements, func(got, want string) bool { return want == "*" || got == want })
}

// parsePath splits u's path. An element that contains "/" or is not UTF-8 is not an id. The path of
// a file has the same escapes as in messages.
func parsePath(u *url.URL) (path, error) {
	var p path
	for raw := range strings.SplitSeq(strings.TrimPrefix(u.EscapedPath(), "/"), "/") {
		element, err := url.PathUnescape(raw)
		if err != nil {
			return path{}, invalid("path: %v", err)
		}
		p.elements = append(p.elements, element)
	}
	if len(p.elements) > 4 && p.elements[1] == "codebases" && p.elements[3] == "files" {
		p.file, p.isFile = strings.Join(p.elements[4:], "/"), true
		p.elements = p.elements[:4]
	}
	if !utf8.ValidString(p.file) {
		return path{}, invalid(`file_path: not UTF-8: write such a byte as \xNN`)
	}
	for _, element := range p.elements {
		if strings.Contains(element, "/") || !utf8.ValidString(element) {
			return path{}, notFound()
		}
	}
	return p, nil
}

// checkQuery refuses a query that no message can hold, or that the generated code would ignore.
func checkQuery(u *url.URL) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return invalid("query: %v", err)
	}
	for key, all := range values {
		if slices.ContainsFunc(append(all, key), func(s string) bool { return !utf8.ValidString(s) }) {
			return invalid("query: %q: not UTF-8", key)
		}
	}
	return nil
}

// checkAuthorization refuses credentials that metadata cannot hold. Without this check they would
// be dropped, and the request would count as one without credentials.
func checkAuthorization(h http.Header) error {
	for _, value := range h.Values("Authorization") {
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return unauthenticated("authorization: not ASCII")
		}
	}
	return nil
}

// handwritten returns the methods of a route that is not generated, nil for another path.
func (g *gateway) handwritten(p path) methods {
	switch {
	case p.isFile && p.is("v1", "codebases", "*", "files"):
		return g.fileRoutes(p.elements[2], p.file)
	case p.is("v1", "sandboxes", "*", "exec:stream"):
		return methods{http.MethodPost: func(w http.ResponseWriter, r *http.Request) { g.execStream(w, r, p.elements[2]) }}
	case p.is("v1", "sessions", "*", "exec:stream"):
		return methods{http.MethodPost: func(w http.ResponseWriter, r *http.Request) { g.sessionExecStream(w, r, p.elements[2]) }}
	case p.is("v1", "sandboxes", "*", "view:read"):
		return methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { g.readView(w, r, p.elements[2]) }}
	case p.is("v1", "sandboxes", "*", "export"):
		return methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { g.export(w, r, p.elements[2]) }}
	case p.is("v1", "sandboxes", "*", "view:watch"):
		return methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { g.watchView(w, r, p.elements[2]) }}
	case p.is("v1", "sandboxes", "*", "messages:watch"):
		return methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { g.watchMessages(w, r, p.elements[2]) }}
	case p.is("v1", "sandboxes", "*", "audit:stream"):
		return methods{http.MethodGet: func(w http.ResponseWriter, r *http.Request) { g.auditStream(w, r, p.elements[2]) }}
	}
	return nil
}

func (g *gateway) fileRoutes(codebaseID, file string) methods {
	upload := func(w http.ResponseWriter, r *http.Request) { g.upload(w, r, codebaseID, file) }
	return methods{
		http.MethodGet:  func(w http.ResponseWriter, r *http.Request) { g.download(w, r, codebaseID, file) },
		http.MethodPut:  upload,
		http.MethodPost: upload,
		http.MethodDelete: func(w http.ResponseWriter, r *http.Request) {
			g.boundBody(w, r, g.o.MaxBodyBytes)
			g.mux.ServeHTTP(w, r)
		},
	}
}
