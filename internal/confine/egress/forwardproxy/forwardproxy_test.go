package forwardproxy

import (
	"bufio"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func table(t *testing.T, variables map[string]string) *Table {
	t.Helper()
	got, err := Parse(FromEnvironment(func(name string) string { return variables[name] }))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTheProxyOfATarget(t *testing.T) {
	for name, tt := range map[string]struct {
		variables map[string]string
		host      string
		port      uint16
		want      string // "": directly
	}{
		"none":                     {nil, "a.example", 443, ""},
		"of TLS":                   {map[string]string{"HTTPS_PROXY": "http://p.example:3128", "HTTP_PROXY": "q.example"}, "a.example", 443, "p.example:3128"},
		"of any other port":        {map[string]string{"https_proxy": "http://p.example:3128"}, "a.example", 22, "p.example:3128"},
		"of port 80":               {map[string]string{"HTTPS_PROXY": "http://p.example:3128", "http_proxy": "q.example"}, "a.example", 80, "q.example:80"},
		"of TLS alone":             {map[string]string{"HTTPS_PROXY": "http://p.example:3128"}, "a.example", 80, ""},
		"of everything":            {map[string]string{"ALL_PROXY": "https://p.example"}, "a.example", 80, "p.example:443"},
		"a name without":           {map[string]string{"ALL_PROXY": "p.example", "NO_PROXY": "a.example"}, "a.example", 443, ""},
		"a name below one without": {map[string]string{"ALL_PROXY": "p.example", "no_proxy": ".example"}, "a.example", 443, ""},
		"an address without":       {map[string]string{"ALL_PROXY": "p.example", "NO_PROXY": "10.0.0.0/8"}, "10.1.2.3", 5432, ""},
		"a port without":           {map[string]string{"ALL_PROXY": "p.example", "NO_PROXY": "a.example:22"}, "a.example", 443, "p.example:80"},
		"all without":              {map[string]string{"ALL_PROXY": "p.example", "NO_PROXY": "*"}, "a.example", 443, ""},
		"IPv6":                     {map[string]string{"ALL_PROXY": "http://[2001:db8::1]:3128"}, "2606::1", 443, "[2001:db8::1]:3128"},
	} {
		got := ""
		if p := table(t, tt.variables).For(tt.host, tt.port); p != nil {
			got = p.Place()
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestAProxyThatCannotBeUsedIsRefused(t *testing.T) {
	for _, text := range []string{"socks5://me:hidden@p.example", "http://", "http://me:hidden@p.example:0", "http://me:hidden@p.example:99999", "http://me:hidden@p.example/path", "://hidden", "http://me:hid den@p.example", "ftp://me:hidden@p.example"} {
		_, err := Parse(Settings{HTTPS: text})
		if !errdefs.Is(err, errdefs.Invalid) || !strings.Contains(err.Error(), "HTTPS_PROXY") || strings.Contains(err.Error(), "hid") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// connect has a proxy connect that answers with a text.
func connect(t *testing.T, answer string) (net.Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() {
		ours.Close()
		theirs.Close()
	})
	go func() {
		if q, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil && q.Method == http.MethodConnect {
			_, _ = io.WriteString(theirs, answer) // the proxy may be left
		}
	}()
	return (&Proxy{Host: "p.example", Port: 3128}).Connect(t.Context(), ours, "a.example:443", nil)
}

func TestWhatAProxyAnswers(t *testing.T) {
	c, err := connect(t, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nhello")
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "hello" {
		t.Errorf("what the target says first: %q, %v", b, err)
	}
	for answer, want := range map[string]string{
		"HTTP/1.1 502 x\r\n\r\n":                                "the proxy p.example:3128 answers 502 Bad Gateway",
		"HTTP/1.1 101 x\r\n\r\n":                                "101",
		"SSH-2.0-x\r\n\r\n":                                     "not HTTP",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead): "too long",
	} {
		if _, err := connect(t, answer); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %s", answer, err, want)
		}
	}
}

func TestAProxyOverTLSIsVerified(t *testing.T) {
	host := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n"+r.Host)
			c.Close()
		}
	}))
	defer host.Close()
	roots := x509.NewCertPool()
	roots.AddCert(host.Certificate())
	for name, pool := range map[string]*x509.CertPool{"trusted": roots, "not trusted": x509.NewCertPool()} {
		c, err := net.Dial("tcp", host.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		over, err := (&Proxy{Host: "example.com", Port: 443, Secure: true}).Connect(ctx, c, "a.example:443", pool)
		if name == "not trusted" {
			if err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := io.ReadAll(over); string(b) != "a.example:443" {
			t.Errorf("%s: got %q", name, b)
		}
	}
}
