package network_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

const gatherConnections = "gather"

// together is how many connections gather makes at once.
const together = 500

// gather asks for /together over so many connections, none of which is answered before all have
// asked.
func gather([]string) int {
	roots := x509.NewCertPool()
	authority, err := os.ReadFile("/opt/authority.pem")
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		fmt.Fprintln(os.Stderr, "no authority:", err)
		return 1
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	errs := make(chan error, together)
	for range together {
		go func() {
			r, err := client.Get("https://example.com/together")
			if err == nil {
				r.Body.Close()
			}
			if err == nil && r.StatusCode != http.StatusOK {
				err = errors.New(r.Status)
			}
			errs <- err
		}()
	}
	for range together {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// meeting answers requests when so many of them are there.
type meeting struct {
	mu    sync.Mutex
	there int
	all   chan struct{}
}

func (m *meeting) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	if m.there == 0 {
		m.all = make(chan struct{})
	}
	m.there++
	all := m.all
	if m.there == together {
		m.there = 0
		close(all)
	}
	m.mu.Unlock()
	select {
	case <-all:
	case <-r.Context().Done():
	}
}

func TestFiveHundredConnectionsAtOnce(t *testing.T) {
	authority := internet(t, func(_ *testing.T, mux *http.ServeMux) { mux.Handle("/together", &meeting{}) })
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(gatherConnections, nil, flags(authority, "example.com")...)
		if r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		contains(t, "the summary", r.Stderr, fmt.Sprintf("agentfense: network: example.com %d connections, ", together))
	})
}

const connectOften = "connect often"

// connect asks example.com so often over connections of its own.
func connect(args []string) int {
	times, err := strconv.Atoi(args[0])
	for i := 0; i < times && err == nil; i++ {
		err = connectOnce()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func connectOnce() error {
	c, err := net.Dial("tcp", "example.com:80")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && !bytes.HasSuffix(answer, []byte("this is example.com\n")) {
		err = fmt.Errorf("got %q", answer)
	}
	return err
}

// Nothing runs out when a program connects again and again.
func TestConnectionsOneAfterTheOther(t *testing.T) {
	authority := internet(t)
	s := harness.New(t, binary, nil)
	const times = 10_000
	r := s.RunProgram(connectOften, []string{strconv.Itoa(times)}, flags(authority, "example.com:80")...)
	if r.Code != 0 {
		t.Errorf("exit %d\n%s", r.Code, r.Stderr)
	}
	contains(t, "the summary", r.Stderr, fmt.Sprintf("agentfense: network: example.com %d requests, ", times))
}
