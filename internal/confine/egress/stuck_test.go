package egress

import (
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A host that reads nothing keeps both directions of a connection waiting. It gets no more of what
// a program has sent when the connection is cut.
func TestAConnectionToAHostThatReadsNothingIsCut(t *testing.T) {
	t.Run("a WebSocket", func(t *testing.T) {
		host := stuckHost{cut: make(chan error, 1)}
		i := startInterception(t, host.serve, nil, "example.com,intercept")
		c := i.over("example.com")
		if answer, _ := shake(t, c, "example.com", "/", ""); answer.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("got %s", answer.Status)
		}
		host.expectCut(i.outside, c)
	})
	t.Run("a request with a secret", func(t *testing.T) {
		host := stuckHost{cut: make(chan error, 1)}
		o, certificate := startWithSecret(t, host.serve)
		o.handOver(map[string]string{"API_KEY": secretValue}, certificate)
		c := o.dial(insideName)
		if _, err := fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", insideName, 1<<40); err != nil {
			t.Fatal(err)
		}
		host.expectCut(o, c)
	})
}

// stuckHost answers a WebSocket's handshake, and then reads nothing.
type stuckHost struct{ cut chan error }

func (h stuckHost) serve(w http.ResponseWriter, r *http.Request) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.cut <- err
		return
	}
	defer c.Close()
	if key := r.Header.Get("Sec-WebSocket-Key"); key != "" {
		sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
	}
	raw, err := c.(*tls.Conn).NetConn().(*net.TCPConn).SyscallConn()
	if err != nil {
		h.cut <- err
		return
	}
	const patience = 20_000 // milliseconds
	controlErr := raw.Control(func(fd uintptr) {
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, patience); n == 0 {
			err = errors.New("the connection goes on")
		}
	})
	h.cut <- errors.Join(controlErr, err)
}

// expectCut sends until nothing is taken any more, and then revokes all.
func (h stuckHost) expectCut(o *outside, c net.Conn) {
	o.t.Helper()
	for err := error(nil); err == nil; {
		if err = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err == nil {
			_, err = c.Write(make([]byte, 1<<20))
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			o.t.Fatal(err)
		}
	}
	o.setRules()
	if err := <-h.cut; err != nil {
		o.t.Fatal(err)
	}
	o.awaitDenied(reasonRevoked)
	o.await(func(r report) bool { return r.Closed != nil })
}
