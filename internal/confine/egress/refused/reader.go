package refused

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/denial"
)

// Why the kernel's refusals happen.
const (
	reasonPort = "not in the allowlist"
	reasonUDP  = "UDP is refused, but for DNS"
	reasonLost = "refused so often that each is not known"
)

// maxKinds bounds the addresses and ports of one socket that are distinguished between two reports:
// a program can try all. One that does hides nothing of another protocol.
const maxKinds = 32

// Reader reads the refusals of a namespace from its raw sockets.
type Reader struct {
	Name func(a Attempt) string // of the host at an address, or the address

	sockets []*socket
	ended   sync.WaitGroup // of nothing when nothing more is read
}

// socket is one of those of Sources.
type socket struct {
	file     *os.File
	protocol byte
	dropped  uint32 // packets that the kernel had no room for
	denials  denial.Table
}

// Start reads from sockets of Sources, which it takes over, until Close. It calls report from more
// than one goroutine. Errors: of a file that is no socket.
func (r *Reader) Start(files []*os.File, report func(denial.Denied)) error {
	for _, f := range files {
		s := &socket{file: f, denials: denial.Table{Report: report, MaxKinds: maxKinds}}
		r.sockets = append(r.sockets, s)
		protocol := -1
		err := s.control(func(fd int) (err error) {
			protocol, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
			return err
		})
		if err != nil {
			return fmt.Errorf("see what the kernel refuses: %w", err)
		}
		s.protocol = byte(protocol)
		r.ended.Go(func() {
			for s.wait() == nil {
				r.read(s)
			}
			r.read(s)
		})
	}
	return nil
}

// Close reads and reports what is left. A Reader that was not started has nothing.
func (r *Reader) Close() {
	for _, s := range r.sockets {
		_ = s.file.SetReadDeadline(time.Now()) // a closed socket has nothing to wait for
	}
	r.ended.Wait()
	for _, s := range r.sockets {
		s.denials.Stop()
		s.denials.Flush()
		s.file.Close()
	}
}

// Flush reports what was read so far. A Reader that was not started has nothing.
func (r *Reader) Flush() {
	for _, s := range r.sockets {
		s.denials.Flush()
	}
}

// wait returns when there is something to read. Errors: os.ErrDeadlineExceeded, after Close has
// begun.
func (s *socket) wait() error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
}

func (s *socket) control(do func(fd int) error) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) { failed = do(int(fd)) }), failed)
}

// maxBatch bounds how many packets are read before the end is looked for.
const maxBatch = 1024

// read reads packets that are there, and how many the kernel has dropped because the socket was
// full.
func (r *Reader) read(s *socket) {
	var packet [snapLength]byte
	_ = s.control(func(fd int) error { // it is closed by Close alone
		for range maxBatch {
			n, from, err := unix.Recvfrom(fd, packet[:], unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				break
			}
			r.note(s, from, packet[:n])
		}
		if dropped, err := drops(fd); err == nil && dropped != s.dropped {
			s.denials.Note(denial.Denied{Host: denial.Others, Reason: reasonLost, Count: int(dropped - s.dropped)})
			s.dropped = dropped
		}
		return nil
	})
}

func (r *Reader) note(s *socket, from unix.Sockaddr, packet []byte) {
	a, ok := Attempt{}, false
	switch from := from.(type) {
	case *unix.SockaddrInet4:
		a, ok = Parse4(packet)
	case *unix.SockaddrInet6:
		a, ok = Parse6(netip.AddrFrom16(from.Addr), s.protocol, packet)
	}
	if !ok {
		return
	}
	d := denial.Denied{Host: r.Name(a), Port: a.At.Port(), Reason: reasonPort, Count: 1}
	if a.Protocol != "tcp" {
		d.Protocol, d.Reason = a.Protocol, reasonUDP
	}
	s.denials.Note(d)
}
