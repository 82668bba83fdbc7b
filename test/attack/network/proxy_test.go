package network_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentfense/agentfense/test/harness"
)

// proxyPassword is what no sandbox may know of the proxy.
const proxyPassword = "Pr0xyPassw0rdThatNobodyKnows"

// connectProxy is a proxy of the company's network, which connects to public addresses and to
// names, as names says. It returns what it was asked for.
func connectProxy(t *testing.T, names bool) (asked func() string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	l := world.Listen(t, harness.PrivateAddr+":3128")
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
		mu.Lock()
		all = append(all, fmt.Sprintf("%s %s %t", r.Method, r.Host, password == proxyPassword))
		mu.Unlock()
		host, port, err := net.SplitHostPort(r.Host)
		if err != nil || names && net.ParseIP(host) != nil {
			http.Error(w, "names only", http.StatusForbidden)
			return
		}
		up, err := net.Dial("tcp", net.JoinHostPort(harness.PublicAddr, port))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer up.Close()
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		fmt.Fprint(down, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() { _, _ = io.Copy(up, down) }() // both end with the other
		_, _ = io.Copy(down, up)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		text := strings.Join(all, "; ")
		all = nil
		return text
	}
}

// Hosts are reached by the proxy that the caller's environment names. Nothing of that is inside,
// and a sandbox does not reach the proxy itself, whatever it is allowed.
func TestTheCallersProxy(t *testing.T) {
	authority := internet(t)
	t.Setenv("HTTPS_PROXY", "http://me:"+proxyPassword+"@"+harness.PrivateAddr+":3128")
	t.Setenv("NO_PROXY", "other.example.net")
	for _, names := range []bool{false, true} {
		t.Run(fmt.Sprintf("names %t", names), func(t *testing.T) {
			asked := connectProxy(t, names)
			eachUser(t, func(t *testing.T, who ...harness.Option) {
				s := harness.New(t, binary, nil, who...)
				r := s.Run(`
curl -sS https://example.com/
curl -sS https://other.example.net/
curl -s --max-time 20 http://`+harness.PrivateAddr+`:3128/ || echo refused
curl -s https://inner.example.com/ || echo refused
env | grep -i _proxy=; grep -a 'Pr0xyPassw0rd[T]hat' /proc/*/environ 2>/dev/null || echo none`,
					flags(authority, "example.com", "other.example.net", "inner.example.com", harness.PrivateAddr+":3128,raw")...)
				want(t, r, "this is example.com\nthis is other.example.net\nrefused\nrefused\nnone\n")
				expected := "CONNECT " + harness.PublicAddr + ":443 true"
				if names {
					expected += "; CONNECT example.com:443 true"
					contains(t, "the summary", r.Stderr, "resolved by the proxy")
				}
				if got := asked(); got != expected {
					t.Errorf("the proxy got %s, want %s", got, expected)
				}
				contains(t, "the summary", r.Stderr, "this is the proxy by which agentfense reaches hosts", "not a public one")
				contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "the proxy "+harness.PrivateAddr+":3128")
				holdsNot(t, s.Home, proxyPassword)
			})
		})
	}
}

// A proxy that cannot be used keeps the sandbox from starting, and its password is not told.
func TestAProxyThatCannotBeUsed(t *testing.T) {
	harness.NeedWorld(t)
	t.Setenv("ALL_PROXY", "socks5://me:"+proxyPassword+"@"+harness.PrivateAddr+":1080")
	s := harness.New(t, binary, nil)
	r := s.Agentfense("run", "--name", s.Name, "--allow-net", "example.com", "--", "true")
	if r.Code == 0 || !strings.Contains(r.Stderr, "HTTP CONNECT only") || strings.Contains(r.Stderr, proxyPassword) {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}
}

// holdsNot checks that no file below a directory has a text.
func holdsNot(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), text) {
			t.Errorf("%s has it", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
