package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/egress/secret"
)

// intercepting is a process that opens TLS, and the pool by which programs trust it.
type intercepting struct {
	*outside

	trusted *x509.CertPool
}

// startInterception starts a process that opens connections to example.com, where handler answers.
func startInterception(t *testing.T, handler http.HandlerFunc, secrets []wireSecret, rules ...string) *intercepting {
	t.Helper()
	host := httptest.NewUnstartedServer(handler)
	host.EnableHTTP2 = true
	return startInterceptionOf(t, host, nil, secrets, rules...)
}

// startInterceptionOf is startInterception of a host that is not started yet. change changes the
// process.
func startInterceptionOf(t *testing.T, host *httptest.Server, change func(*process), secrets []wireSecret, rules ...string) *intercepting {
	t.Helper()
	host.StartTLS()
	t.Cleanup(host.Close)
	roots := x509.NewCertPool()
	roots.AddCert(host.Certificate())
	i := &intercepting{trusted: x509.NewCertPool()}
	pair, err := authority.New()
	if err != nil || !i.trusted.AppendCertsFromPEM(pair.PEM()) {
		t.Fatalf("no authority: %v", err)
	}
	i.outside = startProcess(t, host.Listener, func(p *process) {
		if err := p.interception.begin(pair, func() (*x509.CertPool, error) { return roots, nil }); err != nil {
			t.Error(err)
		}
		if err := p.secrets.set(secrets, p.quotas.Take); err != nil {
			t.Error(err)
		}
		if change != nil {
			change(p)
		}
	}, rules...)
	return i
}

// client asks over TLS to a host, with HTTP/2 if that is wanted.
func (i *intercepting) client(h allowlist.Host, http2 bool) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: i.trusted, ServerName: string(h)}, ForceAttemptHTTP2: http2,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return i.dial(h), nil }, DisableCompression: true,
	}
	i.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request and returns the answer's status and body.
func (i *intercepting) ask(c *http.Client, method, url, host string) (int, string) {
	i.t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	r.Host = host
	answer, err := c.Do(r)
	if err != nil {
		i.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

func TestOnlyAllowedRequestsPass(t *testing.T) {
	i := startInterception(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s at %s", r.Method, r.URL.RequestURI(), r.Host)
	}, nil, "example.com,intercept GET,HEAD /simple/**; POST /upload")
	for _, http2 := range []bool{false, true} {
		c := i.client("example.com", http2)
		for _, tt := range []struct {
			method, path string
			status       int
		}{
			{"GET", "/simple/", 200},
			{"GET", "/simple/six/?a=%2f&b", 200},
			{"HEAD", "/simple/six", 200},
			{"POST", "/upload", 200},
			{"POST", "/simple/", 403},
			{"GET", "/upload", 403},
			{"GET", "/", 403},
			{"GET", "/Simple/", 403},
			{"get", "/simple/", 403},
			{"GET", "/simple/../upload", 403},
			{"GET", "/simple/%2e%2e/upload", 403},
			{"GET", "/simple/..%2fupload", 403},
			{"GET", "//simple/", 403},
			{"GET", "/simple//x", 403},
			{"GET", "/simple/x%00", 403},
			{"GET", "/simple/;/../upload", 403},
			{"GET", "/x?/simple/", 403},
			{"TRACE", "/simple/", 405},
		} {
			status, body := i.ask(c, tt.method, "https://example.com"+tt.path, "")
			if status != tt.status {
				t.Errorf("HTTP/2 %t: %s %s: got %d %s, want %d", http2, tt.method, tt.path, status, body, tt.status)
			}
			if want := tt.method + " " + tt.path + " at example.com"; status == 200 && tt.method != "HEAD" && body != want {
				t.Errorf("HTTP/2 %t: the host got %q, want %q", http2, body, want)
			}
		}
		if status, _ := i.ask(c, "GET", "https://example.com/simple/", "evil.net"); status != 403 {
			t.Errorf("HTTP/2 %t: another host: got %d", http2, status)
		}
	}
	_, body := i.ask(i.client("example.com", true), "PUT", "https://example.com/upload", "")
	if !strings.Contains(body, `PUT "/upload" is not allowed by --net-allow of example.com:443; it needs --net-allow 'example.com:443=PUT /upload'`) {
		t.Errorf("the program is told %q", body)
	}
	i.awaitDenied(`PUT "/upload" is not allowed by --net-allow of example.com:443`)
	i.awaitDenied("names another host")
	if opened := i.await(func(r report) bool { return r.Opened != nil }).Opened; opened.Host != "example.com" || opened.Port != 443 {
		t.Errorf("reported %+v", opened)
	}
}

// What two parsers read in different ways is refused on opened connections, too.
func TestNothingIsSmuggledInOpenedConnections(t *testing.T) {
	i := startInterception(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }, nil, "example.com,intercept GET,POST /ok")
	for said, reason := range map[string]string{
		"POST /ok HTTP/1.1\r\nHost: example.com\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX": "more than one length",
		"GET /ok HTTP/1.1\r\nHost: example.com\r\nX: a\r\n b\r\n\r\n":                                                 "malformed header field",
		"GET /ok HTTP/1.1\r\nHost: example.com\r\nHost: evil.net\r\n\r\n":                                             "not exactly one Host field",
		"GET https://evil.net/ok HTTP/1.1\r\nHost: example.com\r\n\r\n":                                               "malformed request target",
		"GET http://evil.net/ok HTTP/1.1\r\nHost: example.com\r\n\r\n":                                                "names another host",
		"CONNECT evil.net:443 HTTP/1.1\r\nHost: evil.net:443\r\n\r\n":                                                 "CONNECT",
		"GET /ok HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n":                  "change of protocol",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                            "HTTP/2 without TLS",
		"GET /ok HTTP/1.1\r\nHost: example.com:80\r\n\r\n":                                                            "names another host",
		"GET /ok HTTP/1.1\r\nHost: example.com\r\nX: " + strings.Repeat("x", 40<<10) + "\r\n\r\n":                     "too long",
	} {
		c := tls.Client(i.dial("example.com"), &tls.Config{RootCAs: i.trusted, ServerName: "example.com"})
		if _, err := io.WriteString(c, said); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%.60q: %v", said, err)
			continue
		}
		if text, _ := io.ReadAll(answer.Body); answer.StatusCode != 403 || !strings.Contains(string(text), reason) {
			t.Errorf("%.60q: got %d %s, want %q", said, answer.StatusCode, text, reason)
		}
		c.Close()
		i.awaitDenied(reason)
	}
}

// A second request of a connection is checked as the first.
func TestARequestBehindAnotherIsChecked(t *testing.T) {
	i := startInterception(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }, nil, "example.com,intercept GET,POST /ok")
	c := tls.Client(i.dial("example.com"), &tls.Config{RootCAs: i.trusted, ServerName: "example.com"})
	defer c.Close()
	if _, err := io.WriteString(c, "POST /ok HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nXGET /no HTTP/1.1\r\nHost: example.com\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for _, want := range []int{200, 403} {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != want {
			t.Errorf("got %d, %v, want %d", answer.StatusCode, err, want)
		}
	}
}

func TestWhoDoesNotTrustTheSandboxsCertificateIsNamed(t *testing.T) {
	i := startInterception(t, func(http.ResponseWriter, *http.Request) {}, nil, "example.com,intercept")
	c := tls.Client(i.dial("example.com"), &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "example.com"})
	if err := c.Handshake(); err == nil {
		t.Error("it is trusted without being known")
	}
	c.Close()
	i.awaitDenied("does not accept the certificates of this sandbox")
}

// The host is verified, and nothing is let through without the authority's key.
func TestInterceptionFailsClosed(t *testing.T) {
	i := startInterception(t, func(http.ResponseWriter, *http.Request) {}, nil, "example.com,intercept")
	j := startInterception(t, func(http.ResponseWriter, *http.Request) {}, nil, "example.org,intercept")
	if status, body := j.ask(j.client("example.org", true), "GET", "https://example.org/", ""); status != 502 || !strings.Contains(body, "certificate") {
		t.Errorf("a host with another name's certificate: got %d %s", status, body)
	}
	if status, _ := i.ask(i.client("example.com", true), "GET", "https://example.com/", ""); status != 200 {
		t.Errorf("got %d", status)
	}
	o := startProcess(t, echo(t, plain), nil, "example.com,intercept")
	if err := tls.Client(o.dial("example.com"), client("example.com")).Handshake(); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("got %v, want an alert", err)
	}
	o.awaitDenied(reasonNoAuthority)
}

func TestASecretIsPutIntoAnOpenedConnection(t *testing.T) {
	secrets := []wireSecret{{Name: "API_KEY", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: secretPlaceholder}}
	i := startInterception(t, reflect, secrets, "example.com,intercept GET /")
	c := i.client("example.com", true)
	status := func(credential string) (int, string) {
		r, err := http.NewRequest("GET", "https://example.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", credential)
		answer, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	if got, body := status("Bearer " + secretPlaceholder); got != http.StatusServiceUnavailable {
		t.Errorf("without a value: got %d %s", got, body)
	}
	i.handOver(map[string]string{"API_KEY": secretValue}, nil)
	if got, body := status("Bearer " + secretPlaceholder); got != 200 || body != "Bearer "+strings.Repeat("*", len(secretValue))+" true" {
		t.Errorf("got %d %s", got, body)
	}
	if got, body := status("Bearer mine"); got != 200 || body != " false" {
		t.Errorf("with a key of its own: got %d %s", got, body)
	}
	if got, _ := i.ask(c, "POST", "https://example.com/", ""); got != 403 {
		t.Errorf("a request that the rule does not allow: got %d", got)
	}
}

// A host of a secret is reached where the secret can be put in, and nowhere else.
func TestAHostOfASecretIsNotReachedInClear(t *testing.T) {
	for port, reason := range map[uint16]string{443: "secret API_KEY is for this host: reach it by", 80: "over TLS only"} {
		secrets := []wireSecret{{Name: "API_KEY", Hosts: []secret.Target{{Host: "example.com", Port: port}}, Placeholder: secretPlaceholder}}
		o := startInterception(t, reflect, secrets, "example.com:80,intercept")
		if c, err := net.Dial("tcp", o.hosts["example.com"].String()); err == nil { // it may be reset by then
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
			if answer, _ := io.ReadAll(c); len(answer) > 0 {
				t.Errorf("a secret for port %d: got %s", port, answer)
			}
			c.Close()
		}
		o.awaitDenied(reason)
	}
	secrets := []wireSecret{
		{Name: "A", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: "A" + secretPlaceholder},
		{Name: "B", Hosts: []secret.Target{{Host: "example.com", Port: 443}}, Placeholder: "B" + secretPlaceholder},
	}
	o := startInterception(t, reflect, secrets, "example.com,intercept")
	if r, err := o.client("example.com", false).Get("https://example.com/"); err == nil {
		r.Body.Close()
		t.Errorf("two secrets for one host: got %s", r.Status)
	}
	o.awaitDenied("several secrets are for this host")
}

func TestARuleThatInterceptsCutsWhatWasNotOpened(t *testing.T) {
	o := startProcess(t, echo(t, overTLS(t, nil)), nil, "example.com")
	c := tls.Client(o.dial("example.com"), client("example.com"))
	if err := exchange(t, c, "before"); err != nil {
		t.Fatal(err)
	}
	o.setRules("example.com,intercept GET /")
	o.acknowledged(1)
	if !isCut(t, c) {
		t.Error("the connection was not cut")
	}
}
