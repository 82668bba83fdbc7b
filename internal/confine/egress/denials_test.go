package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// A query may be answered while the process ends.
func TestWhatIsToldAfterTheEndIsDropped(t *testing.T) {
	ours, theirs, err := wirePair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	p := newProcess(theirs)
	if err := (wire{ours}).send(order{}); err != nil {
		t.Fatal(err)
	}
	control(ours, func(fd int) { err = unix.Shutdown(fd, unix.SHUT_WR) })
	if err := errors.Join(err, p.run()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * cap(p.reports) {
		p.denials.note(fmt.Sprint(i), 0, NotAllowed, 1)
	}
	p.denials.Flush()
	p.denials.Stop()
}

// Connections to the resolver that ask nothing more must not keep it from answering packets.
func TestIdleConnectionsTakeNoQuerysPlace(t *testing.T) {
	p := newProcess(nil)
	ctx, cancel := context.WithCancel(t.Context())
	p.ctx, p.denials.Report = ctx, func(Denied) {}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err := errors.Join(err, p.serveResolver(nil, []*os.File{f})); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	query := queryFor(t, "1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR)
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 2+len(query))); err != nil {
		t.Fatal(err)
	}
	if n := len(p.queries); n != 0 {
		t.Errorf("it takes the place of %d queries", n)
	}
	cancel()
	p.working.Wait()
}
