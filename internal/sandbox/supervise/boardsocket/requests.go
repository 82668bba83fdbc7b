package boardsocket

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/board"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// maxMessageWait and maxLockWait bound how long a request may wait.
const (
	maxMessageWait = time.Minute
	maxLockWait    = 10 * time.Minute
	maxLockFor     = 24 * time.Hour
)

// lockBody is the body of a request for locks, and of one that ends them.
type lockBody struct {
	Paths       []string `json:"paths"`
	Advisory    bool     `json:"advisory"`
	ForSeconds  int      `json:"for_seconds"`
	WaitSeconds int      `json:"wait_seconds"`
	All         bool     `json:"all"`
}

// lockJSON is a lock, or a request that waits.
type lockJSON struct {
	Sandbox  string    `json:"sandbox"`
	Path     string    `json:"path"`
	Mine     bool      `json:"mine"`
	Advisory bool      `json:"advisory,omitempty"`
	Waits    bool      `json:"waits,omitempty"`
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until,omitzero"`
}

type messageBody struct {
	Topic string `json:"topic"`
	Text  string `json:"text"`
}

type messagesJSON struct {
	Messages []board.Message `json:"messages"`
	Next     uint64          `json:"next"`
	Lost     uint64          `json:"lost,omitempty"`
}

type memberJSON struct {
	Sandbox string    `json:"sandbox"`
	Me      bool      `json:"me"`
	Status  string    `json:"status,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the status
}

// routes are all requests, by method and path.
var routes = map[string]func(*Server, http.ResponseWriter, *http.Request) (any, error){
	"GET /locks":     (*Server).locks,
	"POST /lock":     (*Server).lock,
	"POST /unlock":   (*Server).unlock,
	"GET /messages":  (*Server).messages,
	"POST /messages": (*Server).post,
	"GET /members":   (*Server).members,
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	route := routes[r.Method+" "+r.URL.Path]
	var answer any
	var err error
	switch {
	case !s.requests.Take(time.Now()):
		err = errdefs.New(errdefs.Exhausted, "too many requests: wait a second")
	case route == nil:
		err = errdefs.New(errdefs.NotFound, "no such request: /run/agentfense/README.md lists them")
	default:
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		answer, err = route(s, w, r)
	}
	s.answer(w, answer, err)
}

// answer sends what a request gets, as one line of JSON that a terminal shows as it is.
func (s *Server) answer(w http.ResponseWriter, answer any, err error) {
	status := http.StatusOK
	if err != nil {
		if isOfHost(err) {
			s.o.Log.Error("board", "err", err)
			err = errdefs.New(errdefs.KindOf(err), "the supervisor of the sandbox cannot do that: its log has the reason")
		}
		status = statusOf(errdefs.KindOf(err))
		answer = map[string]string{"error": err.Error()}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestPatience))
	_, _ = w.Write(append(vpath.EscapeJSON(text), '\n')) // the client may have left
}

// isOfHost reports whether an error is one of the host or of another supervisor. Its text may have
// paths of the host, which no program inside is to know.
func isOfHost(err error) bool {
	if kind := errdefs.KindOf(err); kind == errdefs.Internal || kind == errdefs.Unavailable {
		return true
	}
	_, isErrno := errors.AsType[unix.Errno](err)
	_, isPath := errors.AsType[*fs.PathError](err)
	return isErrno || isPath
}

func (s *Server) locks(http.ResponseWriter, *http.Request) (any, error) {
	held, err := s.o.Locks()
	list := []lockJSON{}
	for _, l := range held {
		list = append(list, lockJSON{Sandbox: l.Sandbox, Path: cmp.Or(l.Path, "."), Mine: l.Own, Advisory: l.Advisory, Waits: l.Waits, Since: l.Since, Until: l.Until})
	}
	return map[string][]lockJSON{"locks": list}, err
}

func (s *Server) lock(w http.ResponseWriter, r *http.Request) (any, error) {
	l, err := s.lockRequest(r)
	if err != nil {
		return nil, err
	}
	if l.All {
		return nil, errdefs.New(errdefs.Invalid, "all: only to unlock")
	}
	if l.Wait > 0 {
		leave, err := s.wait(w)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	return map[string]any{"locked": len(l.Paths)}, s.o.Lock(r.Context(), l)
}

func (s *Server) unlock(_ http.ResponseWriter, r *http.Request) (any, error) {
	l, err := s.lockRequest(r)
	switch {
	case err != nil:
		return nil, err
	case l.All == (len(l.Paths) > 0):
		return nil, errdefs.New(errdefs.Invalid, "want paths, or all")
	case l.Wait > 0 || l.For > 0 || l.Advisory:
		return nil, errdefs.New(errdefs.Invalid, "want only paths, or all")
	}
	if err := s.mayChange(); err != nil {
		return nil, err
	}
	return map[string]any{}, s.o.Unlock(r.Context(), l)
}

// mayChange counts a change of locks. Errors: Exhausted.
func (s *Server) mayChange() error {
	if s.changes.Take(time.Now()) {
		return nil
	}
	return errdefs.New(errdefs.Exhausted, "too many changes of locks: wait a second, and lock all paths in one request")
}

// lockRequest reads the body of a request about locks.
func (s *Server) lockRequest(r *http.Request) (api.LockRequest, error) {
	var body lockBody
	if err := readBody(r, &body); err != nil {
		return api.LockRequest{}, err
	}
	l := api.LockRequest{Advisory: body.Advisory, All: body.All}
	var err error
	if l.For, err = seconds("for_seconds", body.ForSeconds, maxLockFor); err != nil {
		return l, err
	}
	if l.Wait, err = seconds("wait_seconds", body.WaitSeconds, maxLockWait); err != nil {
		return l, err
	}
	for _, text := range body.Paths {
		p, err := s.path(text)
		if err != nil {
			return l, err
		}
		l.Paths = append(l.Paths, p.Text())
	}
	return l, nil
}

// path reads a path of the source: relative to the workspace, or absolute as programs inside see
// it.
func (s *Server) path(text string) (vpath.Path, error) {
	text = vpath.DecodeText(text)
	if text == "" {
		return "", errdefs.New(errdefs.Invalid, "path: it is empty")
	}
	if path.IsAbs(text) {
		rest, below := strings.CutPrefix(path.Clean(text), s.o.Workspace)
		if !below || rest != "" && rest[0] != '/' {
			return "", errdefs.New(errdefs.Invalid, "path %s: not in the workspace %s", vpath.Quote(text[:min(len(text), 80)]), vpath.Escape(s.o.Workspace))
		}
		text = "/" + rest
	}
	p, err := vpath.Parse(text)
	if err != nil {
		return "", errdefs.New(errdefs.Invalid, "path %s: %w", vpath.Quote(text[:min(len(text), 80)]), err)
	}
	return p, nil
}

func (s *Server) post(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body messageBody
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	m, err := s.o.Post(board.Draft{By: board.ByAgent, Topic: body.Topic, Text: body.Text})
	return map[string]uint64{"seq": m.Seq}, err
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) (any, error) {
	q, patience, err := readQuery(r.URL.Query())
	if err != nil {
		return nil, err
	}
	var p board.Page
	if patience > 0 {
		leave, err := s.wait(w)
		if err != nil {
			return nil, err
		}
		defer leave()
		p, err = s.o.Board.Wait(r.Context(), q, patience)
		if err != nil {
			return nil, err
		}
	} else if p, err = s.o.Board.Read(q); err != nil {
		return nil, err
	}
	return messagesJSON{Messages: append([]board.Message{}, p.Messages...), Next: p.Next, Lost: p.Lost}, nil
}

// readQuery reads which messages are asked for, and how long to wait for one.
func readQuery(values url.Values) (q board.Query, patience time.Duration, err error) {
	known := []string{"after", "topic", "limit", "wait_seconds"}
	for key := range values {
		if !slices.Contains(known, key) || len(values[key]) > 1 {
			return q, 0, errdefs.New(errdefs.Invalid, "query: want each of %s once at most", strings.Join(known, ", "))
		}
	}
	numbers := map[string]int{}
	for _, key := range []string{"limit", "wait_seconds"} {
		if !values.Has(key) {
			continue
		}
		if numbers[key], err = strconv.Atoi(values.Get(key)); err != nil {
			return q, 0, errdefs.New(errdefs.Invalid, "%s: want a number", key)
		}
	}
	if values.Has("after") {
		if q.After, err = strconv.ParseUint(values.Get("after"), 10, 64); err != nil {
			return q, 0, errdefs.New(errdefs.Invalid, "after: want the number of a message")
		}
	}
	q.Topic, q.Limit = values.Get("topic"), numbers["limit"]
	patience, err = seconds("wait_seconds", numbers["wait_seconds"], maxMessageWait)
	return q, patience, err
}

func (s *Server) members(http.ResponseWriter, *http.Request) (any, error) {
	members, err := s.o.Board.Statuses()
	list := []memberJSON{}
	for _, m := range members {
		j := memberJSON{Sandbox: m.Name, Me: m.ID == s.o.Self.ID}
		if m.Status != nil {
			j.Status, j.Since = m.Status.Text, m.Status.Time
		}
		list = append(list, j)
	}
	return map[string][]memberJSON{"members": list}, err
}

// wait takes one of the seats of requests that wait. The request has arrived: from now on only the
// end of the connection ends it.
func (s *Server) wait(w http.ResponseWriter) (leave func(), err error) {
	select {
	case s.waiting <- struct{}{}:
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // else it ends too early, no more
		return func() { <-s.waiting }, nil
	default:
		return nil, errdefs.New(errdefs.Exhausted, "%d requests wait already", maxWaiting)
	}
}

// readBody reads the one JSON object of a request. Errors: Invalid; Exhausted.
func readBody(r *http.Request, to any) error {
	text, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return errdefs.New(errdefs.Exhausted, "the request has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return errdefs.New(errdefs.Invalid, "the request is incomplete")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return errdefs.New(errdefs.Invalid, "the request is not the JSON object that it should be: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errdefs.New(errdefs.Invalid, "want one JSON object")
	}
	return nil
}

func seconds(name string, n int, most time.Duration) (time.Duration, error) {
	if n < 0 || n > int(most/time.Second) {
		return 0, errdefs.New(errdefs.Invalid, "%s: want 0 to %d", name, int(most/time.Second))
	}
	return time.Duration(n) * time.Second, nil
}
