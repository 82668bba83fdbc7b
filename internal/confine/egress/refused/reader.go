package refused

import (
	"errors"
	"os"
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

// maxKinds bounds the addresses and ports that are told apart between two reports: a program can
// try all.
const maxKinds = 32

// Reader reads the refusals of a namespace from its packet socket.
type Reader struct {
	Name func(a Attempt) string // of the host at an address, or the address

	file    *os.File
	denials denial.Table
	ended   chan struct{} // closed when nothing more is read
}

// Start reads from a packet socket with Filter, which it takes over, until Close.
func (r *Reader) Start(socket *os.File, report func(denial.Denied)) {
	r.file, r.ended = socket, make(chan struct{})
	r.denials.Report, r.denials.MaxKinds = report, maxKinds
	go func() {
		defer close(r.ended)
		for r.wait() == nil {
			r.read()
		}
		r.read()
	}()
}

// Close reads and reports what is left. A Reader that was not started has nothing.
func (r *Reader) Close() {
	if r.file == nil {
		return
	}
	_ = r.file.SetReadDeadline(time.Now()) // a closed socket has nothing to wait for
	<-r.ended
	r.denials.Stop()
	r.denials.Flush()
	r.file.Close()
}

// Flush reports what was read so far. A Reader that was not started has nothing.
func (r *Reader) Flush() {
	if r.file != nil {
		r.denials.Flush()
	}
}

// wait returns when there is something to read. Errors: os.ErrDeadlineExceeded, after Close has
// begun.
func (r *Reader) wait() error {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0
	})
}

// maxBatch bounds how many packets are read before the end is looked for.
const maxBatch = 1024

// read reads packets that are there, and how many the kernel has dropped because the socket was
// full.
func (r *Reader) read() {
	raw, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	var packet [snapLength]byte
	_ = raw.Control(func(fd uintptr) { // it is closed by Close alone
		for range maxBatch {
			n, _, err := unix.Recvfrom(int(fd), packet[:], unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				break
			}
			r.note(packet[:n])
		}
		stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err == nil && stats.Drops > 0 {
			r.denials.Note(denial.Denied{Host: denial.Others, Reason: reasonLost, Count: int(stats.Drops)})
		}
	})
}

func (r *Reader) note(packet []byte) {
	a, ok := Parse(packet)
	if !ok {
		return
	}
	d := denial.Denied{Host: r.Name(a), Port: a.At.Port(), Reason: reasonPort, Count: 1}
	if a.Protocol != "tcp" {
		d.Protocol, d.Reason = a.Protocol, reasonUDP
	}
	r.denials.Note(d)
}
