package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// link is a connection towards a target.
type link struct {
	net.Conn // what is written to and read from: TCP, or TLS to a proxy in it

	tcp   *net.TCPConn
	to    netip.Addr      // of the target; not valid if a proxy looked that up
	proxy string          // HOST:PORT of the proxy; "": none
	meter *meter          // of what passes
	ctx   context.Context // ends waits
}

// plain returns the TCP connection if nothing has to see what passes, else nil: the kernel can copy
// then.
func (l *link) plain() *net.TCPConn {
	if l.meter.counts() || l.Conn != net.Conn(l.tcp) {
		return nil
	}
	return l.tcp
}

// Read reads. It returns a refusal with the last bytes that a limit lets pass.
func (l *link) Read(p []byte) (int, error) {
	if !l.meter.counts() {
		return l.Conn.Read(p)
	}
	if l.meter.rate != nil {
		p = p[:min(len(p), l.meter.slice)]
	}
	n, err := l.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	n, refused := l.meter.pass(l.ctx, l.meter.in, n)
	return n, errors.Join(refused, err)
}

// Write writes what the limits let pass. Errors: a refusal, too.
func (l *link) Write(p []byte) (written int, err error) {
	if !l.meter.counts() {
		return l.Conn.Write(p)
	}
	for len(p) > 0 && err == nil {
		size := len(p)
		if l.meter.rate != nil {
			size = min(size, l.meter.slice)
		}
		granted, refused := l.meter.pass(l.ctx, l.meter.out, size)
		var n int
		n, err = l.Conn.Write(p[:granted])
		written += n
		p, err = p[n:], errors.Join(err, refused)
	}
	return written, err
}

// CloseWrite says that nothing more comes.
func (l *link) CloseWrite() error {
	half, can := l.Conn.(interface{ CloseWrite() error })
	if !can {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// reset closes so that the other side learns at once.
func (l *link) reset() {
	_ = l.tcp.SetLinger(0)
	l.tcp.Close()
}
