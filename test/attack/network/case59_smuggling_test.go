package network_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const smuggleRequests = "smuggle"

// mark is in what must not reach the server.
const mark = "smuggled"

// smuggledThrough counts requests for it that a host of internet got.
var smuggledThrough atomic.Int32

const post = "POST /first HTTP/1.1\r\nHost: example.com\r\n"

// hidden is a request that the server may take for one of its own.
const hidden = "GET /" + mark + " HTTP/1.1\r\nHost: other.example.net\r\nConnection: close\r\n\r\n"

// smuggled are what a program sends on a connection to example.com: requests that two parsers may
// divide in different ways, or that are for another host.
var smuggled = []struct{ name, text string }{
	{"CL.TE", post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX" + hidden},
	{"TE.CL", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + hidden + "\r\n0\r\n\r\n"},
	{"two lengths", post + "Content-Length: 0\r\nContent-Length: 200\r\n\r\n" + hidden},
	{"a length with a sign", post + "Content-Length: +0\r\n\r\n" + hidden},
	{"a list of lengths", post + "Content-Length: 0, 200\r\n\r\n" + hidden},
	{"two encodings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden},
	{"an encoding that is none", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + hidden},
	{"a space before the colon", post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden},
	{"a vertical tab", post + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + hidden},
	{"a folded field", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + hidden},
	{"a field folded into the Host", "GET /first HTTP/1.1\r\nHost: example.com\r\n\tX: " + mark + "\r\n\r\n"},
	{"an underscore", post + "Content_Length: 200\r\n\r\n" + hidden},
	{"a bare line feed", post + "X: a\nContent-Length: 200\r\n\r\n" + hidden},
	{"a NUL", post + "X: \x00\r\n\r\n" + hidden},
	{"an empty line first", "\r\n" + hidden},
	{"HTTP/0.9", "GET /" + mark + "\r\n"},
	{"HTTP/1.0 without a Host", "GET /" + mark + " HTTP/1.0\r\n\r\n"},
	{"two Hosts", "GET /" + mark + " HTTP/1.1\r\nHost: example.com\r\nHost: other.example.net\r\n\r\n"},
	{"a Host that Connection removes", "GET /" + mark + " HTTP/1.1\r\nHost: example.com\r\nConnection: Host\r\n\r\n"},
	{"an extension of a chunk", post + "Transfer-Encoding: chunked\r\n\r\n1;a=\r\nX\r\n0\r\n\r\n" + hidden},
	{"a chunk longer than it says", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nXX\r\n0\r\n\r\n" + hidden},
	{"a trailer", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nX: " + mark + "\r\n\r\n"},
	{"a second request", post + "Content-Length: 1\r\n\r\nX" + hidden},
	{"a second request behind chunks", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nX\r\n0\r\n\r\n" + hidden},
	{"a second whole URL", post + "Content-Length: 0\r\n\r\nGET http://other.example.net/" + mark + " HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"a whole URL", "GET http://other.example.net/" + mark + " HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"a whole URL of another scheme", "GET https://example.com/" + mark + " HTTP/1.1\r\nHost: example.com\r\n\r\n"},
	{"CONNECT", "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n" + hidden},
	{"h2c by its preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + mark},
	{"h2c by an upgrade", "GET /" + mark + " HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"},
	{"a WebSocket", "GET /" + mark + " HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + hidden},
	{"TLS behind a request", post + "Content-Length: 0\r\n\r\n\x16\x03\x01" + mark + "\r\n"},
}

// smuggle sends each of them, and reads until the connection has ended.
func smuggle([]string) int {
	for _, s := range smuggled {
		c, err := net.Dial("tcp", "example.com:80")
		if err != nil {
			fmt.Fprintln(os.Stderr, s.name+":", err)
			return 1
		}
		_, _ = io.WriteString(c, s.text) // it may be refused by then
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
	return 0
}

// A recorder answers requests and keeps what it was sent.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *recorder) serve(c net.Conn) {
	in := bufio.NewReader(io.TeeReader(c, r))
	for {
		q, err := http.ReadRequest(in)
		if err == nil {
			_, err = io.Copy(io.Discard, q.Body)
		}
		if err == nil {
			_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, in) // it is recorded
			return
		}
	}
}

// record serves port 80 of the public address.
func record(t *testing.T) *recorder {
	t.Helper()
	harness.NeedWorld(t)
	world.Names(t, names...)
	r := &recorder{}
	go serveEach(world.Listen(t, harness.PublicAddr+":80"), r.serve)
	return r
}

// Nothing but requests for the allowed host leaves on a connection to it, as every parser reads
// them.
func TestNoRequestIsSmuggled(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		server := record(t)
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(smuggleRequests, nil, "--allow-net", "example.com:80")
		if r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		// The first request of two is an honest one.
		testenv.Eventually(t, "the server has the honest requests", func() bool {
			return strings.Count(server.String(), "POST /first ") >= 4
		})
		got := server.String()
		if i := strings.Index(got, mark); i >= 0 {
			t.Errorf("the server got %q", got[max(0, i-200):i+len(mark)])
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "more than one length of the body", "malformed header field",
			"HTTP names another host", "method CONNECT", "HTTP/2 without TLS", "change of protocol", "malformed chunk, or a trailer")
		if n := countRefused(t, s.Agentfense("audit", s.Name, "--json").Stdout); n != len(smuggled) {
			t.Errorf("the audit log has %d refusals of %d attempts", n, len(smuggled))
		}
	})
}
