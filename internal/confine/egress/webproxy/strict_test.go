package webproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentfense/agentfense/internal/confine/egress/sniff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers the requests of one connection with the method and the length of the body, and
// tells why one was refused.
func serve(t *testing.T, patience time.Duration, check func(*sniff.Request) error) (net.Conn, <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	refused, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		Serve(Strict(theirs, patience, check, func(err error) { refused <- err }), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body) // a refused body has an error
			w.Header().Set("X-Length", strings.Repeat("x", int(n)))
		}), patience)
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	return c, refused
}

func pass(*sniff.Request) error { return nil }

func TestRequestsOfAConnectionAreAnswered(t *testing.T) {
	c, _ := serve(t, time.Minute, pass)
	r := bufio.NewReader(c)
	for range 3 {
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(r, nil)
		if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("X-Length") != "xx" {
			t.Fatalf("got %v, %v", answer, err)
		}
	}
}

func TestARefusedRequestEndsTheConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		said     string
		patience time.Duration
		reason   string
		silent   bool // the program is not told: an answer may be on its way
	}{
		"malformed":               {"GET / HTTP/1.1\nHost: a\n\n", time.Minute, "CR LF", false},
		"not what check lets by":  {"GET / HTTP/1.1\r\nHost: bad\r\n\r\n", time.Minute, "another host", false},
		"slow":                    {"GET / HTTP/1.1\r\nHo", 10 * time.Millisecond, "timeout", false},
		"malformed in the second": {"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET\r\n", time.Minute, "malformed request line", true},
		"a malformed chunk":       {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", time.Minute, "malformed chunk", true},
	} {
		t.Run(name, func(t *testing.T) {
			c, refused := serve(t, tt.patience, func(q *sniff.Request) error {
				if q.Hosts[0] == "bad" {
					return errors.New("another host")
				}
				return nil
			})
			if _, err := io.WriteString(c, tt.said); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			if told := strings.HasPrefix(string(text), "HTTP/1.1 403 "); told == tt.silent {
				t.Errorf("got %q", text)
			}
			if err := <-refused; !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("refused because of %v, want %s", err, tt.reason)
			}
		})
	}
}

// A program that goes away is not refused.
func TestAnEndedConnectionIsNoRefusal(t *testing.T) {
	c, refused := serve(t, time.Minute, pass)
	if _, err := io.WriteString(c, "GET / HT"); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err != nil || len(text) > 0 {
		t.Errorf("got %q, %v", text, err)
	}
	select {
	case err := <-refused:
		t.Errorf("refused because of %v", err)
	default:
	}
}
