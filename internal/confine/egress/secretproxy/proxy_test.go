package secretproxy

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
	"github.com/agentfense/agentfense/internal/confine/egress/webproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	value       = "sk-ant-api03-Th3/V4lu3+Th4t=N0b0dy1n51d3"
	placeholder = "sk-ant-api03-Pl4c3h0ld3rPl4c3h0ld3rPl4c"
)

// fixture is a proxy, the host behind it, and what was refused.
type fixture struct {
	t     *testing.T
	proxy Proxy
	dial  func() net.Conn

	mu      sync.Mutex
	refused []string
}

func newFixture(t *testing.T, handler http.HandlerFunc, limits ...string) *fixture {
	t.Helper()
	host := httptest.NewTLSServer(handler)
	t.Cleanup(host.Close)
	transport := host.Client().Transport.(*http.Transport).Clone()
	transport.DisableCompression = true
	t.Cleanup(transport.CloseIdleConnections)
	at := host.Listener.Addr().(*net.TCPAddr)
	f := &fixture{t: t, proxy: Proxy{
		Name: "API_KEY", Inside: "api-key.agentfense.internal", Target: secret.Target{Host: allowlist.Host(at.IP.String()), Port: uint16(at.Port)},
		Placeholder: placeholder, Value: value, Masker: secret.NewMasker(value), Transport: transport,
		Explain: func(error) string { return "" },
	}}
	f.proxy.Refused = func(reason string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.refused = append(f.refused, reason)
	}
	for _, text := range limits {
		l, err := allowlist.ParseRequests(text)
		if err != nil {
			t.Fatal(err)
		}
		f.proxy.Limits = append(f.proxy.Limits, l)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { webproxy.Serve(c, f.proxy.Web().Handler(), time.Minute) })
		}
	})
	f.dial = func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	t.Cleanup(func() {
		l.Close()
		served.Wait()
	})
	return f
}

// ask sends a request as it is written, and returns the answer with its body.
func (f *fixture) ask(request string) (*http.Response, string) {
	f.t.Helper()
	c := f.dial()
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		f.t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	c.Close()
	return r, string(body)
}

const inside = "Host: api-key.agentfense.internal\n"

// dump answers with the header of the request.
func dump(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Seen", "yes")
	seen := r.Header.Clone()
	seen.Set("Host", r.Host)
	seen.Set("Target", r.RequestURI)
	// The proxy masks what it finds, so the value is shown in a form that it does not look for.
	for name, values := range seen {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], value, "(the value)")
			if b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(values[i], "Basic ")); err == nil && strings.HasPrefix(values[i], "Basic ") {
				values[i] = "Basic " + strings.ReplaceAll(string(b), value, "(the value)")
			}
		}
		fmt.Fprintf(w, "%s=%s\n", name, strings.Join(values, ","))
	}
}

func TestTheValueReplacesThePlaceholderAndOtherCredentials(t *testing.T) {
	basic := func(text string) string {
		return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(text)) + "\n"
	}
	for name, tt := range map[string]struct {
		fields  string
		want    []string // lines
		without []string // texts
		taken   string
	}{
		"a bearer token":               {"Authorization: Bearer " + placeholder + "\n", []string{"Authorization=Bearer (the value)"}, nil, ""},
		"a key":                        {"x-api-key: " + placeholder + "\n", []string{"X-Api-Key=(the value)"}, []string{"Authorization"}, ""},
		"Basic, as the password":       {basic("user:" + placeholder), []string{"Authorization=Basic user:(the value)"}, nil, ""},
		"Basic, as the name":           {basic(placeholder + ":"), []string{"Authorization=Basic (the value):"}, nil, ""},
		"no credential":                {"", []string{"Authorization=Bearer (the value)"}, nil, ""},
		"the same one twice":           {"x-api-key: " + placeholder + "\nx-api-key: " + placeholder + "\n", []string{"X-Api-Key=(the value)"}, nil, ""},
		"one of the program's own":     {"Authorization: Bearer mine\n", []string{"Authorization=Bearer (the value)"}, []string{"mine"}, "Authorization"},
		"an own one beside it":         {"Authorization: Bearer " + placeholder + "\nx-api-key: mine\nPrivate-Token: mine\n", []string{"Authorization=Bearer (the value)"}, []string{"mine"}, "X-Api-Key, Private-Token"},
		"an own one before it":         {"x-api-key: mine\nx-api-key: " + placeholder + "\n", []string{"X-Api-Key=(the value)"}, []string{"mine"}, "X-Api-Key"},
		"an own one behind it":         {"x-api-key: " + placeholder + "\nx-api-key: mine\n", []string{"X-Api-Key=(the value)"}, []string{"mine"}, "X-Api-Key"},
		"an own one in its field":      {"Authorization: Bearer mine," + placeholder + "\n", []string{"Authorization=Bearer (the value)"}, []string{"mine"}, "Authorization"},
		"Basic with an own one":        {basic("mine:mine"), []string{"Authorization=Bearer (the value)"}, []string{"mine"}, "Authorization"},
		"a cookie":                     {"Cookie: session=mine\n", nil, []string{"mine"}, "Cookie"},
		"a cookie behind an empty one": {"Cookie:\nCookie: session=mine\n", nil, []string{"mine"}, "Cookie"},
		"the placeholder as cookie":    {"Cookie: " + placeholder + "\n", nil, []string{"Cookie"}, "Cookie"},
		"another field":                {"X-Note: " + placeholder + "\n", []string{"X-Note=" + placeholder}, nil, ""},
		"a field that Connection takes out": {
			"Connection: Authorization\nAuthorization: Bearer " + placeholder + "\n", []string{"Authorization=Bearer (the value)"}, nil, "",
		},
		"the program's encodings": {"Accept-Encoding: gzip\n", []string{"Accept-Encoding=identity"}, nil, ""},
		"a part of the answer":    {"Range: bytes=0-3\n", nil, []string{"Range"}, ""},
		"who asks":                {"X-Forwarded-For: 10.1.2.3\n", nil, []string{"Forwarded"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, dump)
			r, body := f.ask("GET /v1/x?q=1 HTTP/1.1\n" + inside + tt.fields + "\n")
			if r.StatusCode != http.StatusOK {
				t.Fatalf("status %s: %s", r.Status, body)
			}
			lines := strings.Split(body, "\n")
			for _, want := range append(tt.want, "Host="+f.proxy.Authority(), "Target=/v1/x?q=1") {
				if !slices.Contains(lines, want) {
					t.Errorf("the host did not get %q:\n%s", want, body)
				}
			}
			for _, text := range tt.without {
				if strings.Contains(body, text) {
					t.Errorf("the host got %q:\n%s", text, body)
				}
			}
			told := ""
			if tt.taken != "" {
				told = "a credential of the program's own was taken out: " + tt.taken
			}
			if got := strings.Join(f.refused, "; "); got != told {
				t.Errorf("told of %q, want %q", got, told)
			}
		})
	}
}

func TestAQueryHasTheValueOrNoCredential(t *testing.T) {
	for _, tt := range []struct {
		name, host, query, want string
		swapped                 bool
		taken                   string
	}{
		{"a key of the program's own", "api.example.com", "q=1&api_key=mine", "q=1", false, "api_key"},
		{"two keys", "api.example.com", "sig=1&API_KEY=mine", "", false, "api_key sig"},
		{"a parameter that is none", "api.example.com", "q=1&key=2", "q=1&key=2", false, ""},
		{"nothing else", "api.example.com", "access_token=m", "", false, "access_token"},
		{"no credential", "api.example.com", "b=2&a=%20", "b=2&a=%20", false, ""},
		{"the placeholder", "api.example.com", "api_key=" + placeholder + "&q=1", "api_key=" + url.QueryEscape(value) + "&q=1", true, ""},
		{"the placeholder and another one", "api.example.com", "api_key=" + placeholder + "&api_key=mine", "", false, "api_key"},
		{"the placeholder elsewhere", "api.example.com", "q=" + placeholder, "q=" + placeholder, false, ""},
		{"a key of Google", "generativelanguage.googleapis.com", "key=mine&alt=sse", "alt=sse", false, "key"},
		{"the placeholder for Google", "generativelanguage.googleapis.com", "alt=sse&key=" + placeholder, "alt=sse&key=" + url.QueryEscape(value), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Proxy{Target: secret.Target{Host: allowlist.Host(tt.host)}, Placeholder: placeholder, Value: value}
			got, swapped, taken := p.swapQuery(tt.query)
			if got != tt.want || swapped != tt.swapped || strings.Join(taken, " ") != tt.taken {
				t.Errorf("got %s, %t, %q; want %s, %t, %q", got, swapped, taken, tt.want, tt.swapped, tt.taken)
			}
		})
	}
}

func TestWhatIsRefusedIsNotSentOn(t *testing.T) {
	for name, tt := range map[string]struct {
		request string
		status  int
		reason  string
	}{
		"another host":         {"GET / HTTP/1.1\nHost: evil.example\n\n", 403, "names another host"},
		"another port":         {"GET / HTTP/1.1\nHost: api-key.agentfense.internal:8080\n\n", 403, "names another host"},
		"another URL":          {"GET http://evil.example/ HTTP/1.1\n" + inside + "\n", 403, "names another host"},
		"another scheme":       {"GET https://api-key.agentfense.internal/ HTTP/1.1\n" + inside + "\n", 403, "names another host"},
		"a tunnel":             {"CONNECT evil.example:443 HTTP/1.1\nHost: evil.example:443\n\n", 405, "CONNECT"},
		"TRACE":                {"TRACE /v1/a HTTP/1.1\n" + inside + "\n", 405, "TRACE"},
		"no path":              {"OPTIONS * HTTP/1.1\n" + inside + "\n", 403, "without a path"},
		"another method":       {"POST /v1/a HTTP/1.1\n" + inside + "X-HTTP-Method-Override: DELETE\nContent-Length: 0\n\n", 403, "Override"},
		"a WebSocket":          {"GET /v1/a HTTP/1.1\n" + inside + "Connection: Upgrade\nUpgrade: websocket\n\n", 403, "upgrade"},
		"a method not allowed": {"DELETE /v1/a HTTP/1.1\n" + inside + "\n", 403, "not allowed by --secret-allow"},
		"a path not allowed":   {"GET /v2/a HTTP/1.1\n" + inside + "\n", 403, "not allowed by --secret-allow"},
		"a path with dots":     {"GET /v1/../v2/a HTTP/1.1\n" + inside + "\n", 403, "not allowed by --secret-allow"},
		"an escaped path":      {"GET /v1/%2e%2e/a HTTP/1.1\n" + inside + "\n", 403, "not allowed by --secret-allow"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent on") }, "GET,POST,TRACE /v1/**")
			r, body := f.ask(tt.request)
			if r.StatusCode != tt.status || !strings.Contains(body, tt.reason) {
				t.Errorf("got %s: %s; want %d: %s", r.Status, body, tt.status, tt.reason)
			}
			if len(f.refused) != 1 || !strings.Contains(f.refused[0], tt.reason) {
				t.Errorf("told of %q", f.refused)
			}
		})
	}
}

func TestWithoutAValueNothingIsSentOn(t *testing.T) {
	f := newFixture(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent on") })
	f.proxy.Value = ""
	if r, body := f.ask("GET / HTTP/1.1\n" + inside + "\n"); r.StatusCode != 503 || !strings.Contains(body, "API_KEY") {
		t.Errorf("got %s: %s", r.Status, body)
	}
}

// reflections are forms in which a host may send a value back.
var reflections = map[string]string{
	"as it is":      value,
	"base64":        base64.StdEncoding.EncodeToString([]byte(value)),
	"base64, moved": base64.StdEncoding.EncodeToString([]byte("x"+value)) + base64.URLEncoding.EncodeToString([]byte("xy"+value)),
	"percent":       url.QueryEscape(value),
	"percent, all": func() string {
		text := ""
		for _, c := range []byte(value) {
			text += fmt.Sprintf("%%%02x", c)
		}
		return text
	}(),
	"hexadecimal":  hex.EncodeToString([]byte(value)),
	"JSON":         strings.ReplaceAll(value, "/", `\/`),
	"JSON of .NET": strings.ReplaceAll(value, "+", `\u002B`),
	"HTML":         strings.ReplaceAll(value, "+", "&#43;"),
}

// tell is a part of each form that is long enough to be the value's.
func tell(form string) string { return form[len(form)/4 : len(form)/4+10] }

func TestAnAnswerDoesNotTellTheValue(t *testing.T) {
	for name, form := range reflections {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Trailer", "X-Last")
				w.Header().Set("X-First", form)
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusTeapot)
				text := "before " + form + " after " + strings.Repeat("x", 10_000) + form
				for i := range len(text) { // in pieces
					_, _ = io.WriteString(w, text[i:i+1])
					if i < 300 {
						w.(http.Flusher).Flush()
					}
				}
				w.Header().Set("X-Last", form)
			})
			c := f.dial()
			if _, err := io.WriteString(c, strings.ReplaceAll("GET / HTTP/1.1\n"+inside+"Te: trailers\nConnection: close\n\n", "\n", "\r\n")); err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(all, []byte("103 Early Hints")) || !bytes.Contains(all, []byte("418")) || !bytes.Contains(all, []byte("X-Last")) {
				t.Fatalf("the answer is not whole: %.500s", all)
			}
			whole, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all[bytes.Index(all, []byte("HTTP/1.1 418")):])), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(whole.Body)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(body, []byte("before ")) || !bytes.Contains(body, []byte("***")) || !bytes.Contains(body, []byte(" after xxx")) {
				t.Errorf("the rest has changed: %.200s", body)
			}
			for _, text := range []string{string(all), string(body)} {
				if strings.Contains(text, tell(form)) {
					t.Errorf("it tells the value: %.500s", text)
				}
			}
		})
	}
}

func TestACompressedAnswerIsRefused(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "not to be searched")
	})
	if r, body := f.ask("GET / HTTP/1.1\n" + inside + "\n"); r.StatusCode != http.StatusBadGateway || strings.Contains(body, "not to be") {
		t.Errorf("got %s: %s", r.Status, body)
	}
}

func TestRedirectsArePassedOnAndCookiesAreNot(t *testing.T) {
	f := newFixture(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Error("it was followed")
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "x"})
		http.Redirect(w, r, "https://evil.example/", http.StatusFound)
	})
	r, _ := f.ask("GET / HTTP/1.1\n" + inside + "\n")
	if r.StatusCode != http.StatusFound || r.Header.Get("Location") != "https://evil.example/" || len(r.Cookies()) > 0 {
		t.Errorf("got %s %v", r.Status, r.Header)
	}
}

// What two servers could read in different ways reaches the host in one way.
func TestOneRequestStaysOne(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	f := newFixture(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.URL.Path)
	}, "POST /v1/**")
	const hidden = "GET /admin HTTP/1.1\nHost: api-key.agentfense.internal\n\n"
	for _, head := range []string{
		"Content-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n" + hidden,
		"Transfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n" + hidden,
		"Transfer-Encoding : chunked\n\n0\n\n" + hidden,
		"Content-Length: 0\nContent-Length: 60\n\n" + hidden,
		"Transfer-Encoding: xchunked\n\n0\n\n" + hidden,
		"Content-Length: 3\n folded\n\n" + hidden,
	} {
		f.ask("POST /v1/a HTTP/1.1\n" + inside + "Connection: close\n" + head)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, p := range paths {
		if p != "/v1/a" {
			t.Errorf("the host was asked for %s", p)
		}
	}
}
