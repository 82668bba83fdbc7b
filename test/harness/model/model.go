// Package model is a server on loopback that plays a language model for coding agents: it answers
// each turn of a conversation with the next step of a script, in the protocol of the request. It
// speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's
// generateContent, streamed or not.
package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Step is one answer of the model: a call of a tool, or a text, after which the agent is done.
type Step struct {
	Tool  string
	Input map[string]any // of the tool
	Text  string
	Hold  func() // what the answer waits for, if it is not nil
}

// Request is what an agent sent.
type Request struct {
	Path string
	Key  string // that the agent showed, in whatever header
	Body string
}

// Server is a model that follows a script. Its zero value is of no use.
type Server struct {
	URL string // http://localhost:PORT; "" of New

	mu       sync.Mutex
	script   []Step
	next     int
	requests []Request
}

// Start starts a server that ends with the test. A request without tools, such as for a title, is
// answered with a text and takes no step, unless the script calls no tools: it is for an agent that
// has none. A request after the last step takes none either, and the last is repeated.
func Start(t testing.TB, script ...Step) *Server {
	t.Helper()
	s := New(script...)
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	return s
}

// New returns a server without a URL, for a test that serves it.
func New(script ...Step) *Server { return &Server{script: script} }

// Requests returns what was asked, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Said returns all that agents have sent, for a search.
func (s *Server) Said() string {
	var b strings.Builder
	for _, r := range s.Requests() {
		fmt.Fprintf(&b, "%s %s\n%s\n", r.Path, r.Key, r.Body)
	}
	return b.String()
}

// maxBody bounds a request.
const maxBody = 16 << 20

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return // the agent is gone
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{Path: r.URL.Path, Key: keyOf(r), Body: string(body)})
	s.mu.Unlock()
	var asked struct {
		Tools  []json.RawMessage `json:"tools"`
		Stream bool              `json:"stream"`
		Model  string            `json:"model"`
	}
	_ = json.Unmarshal(body, &asked) // other requests have no step
	switch path := r.URL.Path; {
	case r.Method == http.MethodHead:
	case r.Header.Get("Upgrade") != "": // no WebSockets: agents go on by HTTP
		http.Error(w, "no WebSockets here", http.StatusUpgradeRequired)
	case strings.HasSuffix(path, "/count_tokens"):
		reply(w, `{"input_tokens": 1}`)
	case strings.HasSuffix(path, "/messages"):
		answer(w, asked.Stream, messages(s.step(len(asked.Tools)), asked.Model))
	case strings.HasSuffix(path, "/responses"):
		answer(w, asked.Stream, responses(s.step(len(asked.Tools)), asked.Model))
	case strings.HasSuffix(path, "/chat/completions"):
		answer(w, asked.Stream, completions(s.step(len(asked.Tools)), asked.Model))
	case strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent"):
		answer(w, strings.HasSuffix(path, ":streamGenerateContent"), gemini(s.step(len(asked.Tools))))
	case strings.HasSuffix(path, ":countTokens"):
		reply(w, `{"totalTokens": 1}`)
	default:
		reply(w, `{"data": [], "models": []}`)
	}
}

// keyOf returns the key of a request.
func keyOf(r *http.Request) string {
	for _, header := range []string{"x-api-key", "x-goog-api-key"} {
		if key := r.Header.Get(header); key != "" {
			return key
		}
	}
	if key, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); is {
		return key
	}
	return r.URL.Query().Get("key")
}

// step returns the next step of the script, for a request with so many tools.
func (s *Server) step(tools int) Step {
	if tools == 0 && slices.ContainsFunc(s.script, func(step Step) bool { return step.Tool != "" }) {
		return Step{Text: "ok"}
	}
	s.mu.Lock()
	step := s.script[min(s.next, len(s.script)-1)]
	s.next++
	s.mu.Unlock()
	if step.Hold != nil {
		step.Hold()
	}
	return step
}

func reply(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, text)
}

// event is one of a stream; Name is "" where the protocol has no names.
type event struct {
	Name string
	Data any
}

// spoken is an answer in a protocol, in both of its forms.
type spoken struct {
	Whole  any
	Events []event
	End    string // the data of the last event, "" for none
}

func answer(w http.ResponseWriter, stream bool, a spoken) {
	if !stream {
		reply(w, encode(a.Whole))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range a.Events {
		if e.Name != "" {
			fmt.Fprintf(w, "event: %s\n", e.Name)
		}
		fmt.Fprintf(w, "data: %s\n\n", encode(e.Data))
	}
	if a.End != "" {
		fmt.Fprintf(w, "data: %s\n\n", a.End)
	}
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // of maps and texts
	}
	return string(text)
}
