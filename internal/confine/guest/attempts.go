package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// PID 1 answers the attempts to get a refused socket (package seccomp) and tells the supervisor of
// them. A program can make any number, so attempts alike are counted: the first is reported at
// once, the next ones together when attemptPause has passed. A program that makes many waits for
// PID 1, which runs in the sandbox's own limits.

// attemptPause is the time between two reports, and maxAttempts bounds the kinds of attempts that
// one has. The others count as one kind.
const (
	attemptPause = 100 * time.Millisecond
	maxAttempts  = 32
)

// attempts are those that the supervisor has not heard of.
type attempts struct {
	listener *seccomp.Listener // nil: the kernel answers them by itself
	counts   map[attempt]uint32
	reported time.Time
}

// attempt is a kind of attempts.
type attempt struct {
	family, kind, protocol uint32
	program                [commBytes]byte
}

// commBytes is TASK_COMM_LEN of linux/sched.h, without the NUL byte.
const commBytes = 15

// othersFamily is the family in a report of attempts that are not distinguished.
const othersFamily = ^uint32(0)

// confineSockets installs the filter of sockets. It returns the errno for which PID 1 does not
// learn of attempts, or 0.
func (p *pid1) confineSockets() (quiet unix.Errno, err error) {
	listener, why, err := seccomp.ConfineSockets()
	if err != nil {
		return 0, err
	}
	if why != nil {
		return errnoOf(why), nil
	}
	p.attempts = attempts{listener: listener, counts: map[attempt]uint32{}}
	return 0, nil
}

// refuse answers one attempt and reports it.
func (p *pid1) refuse(events int16) error {
	if events&unix.POLLIN == 0 {
		return io.ErrUnexpectedEOF
	}
	a := &p.attempts
	call, err := a.listener.Receive()
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	a.add(attempt{family: call.Family, kind: call.Type, protocol: call.Protocol, program: p.proc.program(call.Thread)})
	if err := p.report(false); err != nil {
		return err
	}
	return a.listener.Refuse(call)
}

// add counts an attempt.
func (a *attempts) add(k attempt) {
	if _, known := a.counts[k]; !known && len(a.counts) >= maxAttempts {
		k = attempt{family: othersFamily}
	}
	if a.counts[k] < math.MaxUint32 {
		a.counts[k]++
	}
}

// fd is the listener's descriptor, -1 without one.
func (a *attempts) fd() int32 {
	if a.listener == nil {
		return -1
	}
	return int32(a.listener.FD())
}

func (a *attempts) isReported() bool { return len(a.counts) == 0 }

// report reports what was counted, if a report is due or must be made now. One that is not must not
// wait for the supervisor.
func (p *pid1) report(now bool) error {
	a := &p.attempts
	if a.isReported() || !now && time.Since(a.reported) < attemptPause {
		return nil
	}
	flags := unix.MSG_DONTWAIT
	if now {
		flags = 0
	}
	a.reported = time.Now()
	for k, count := range a.counts {
		message := encode(msgAttempt, k.family, k.kind, k.protocol, count)
		err := sendWith(flags, p.socket, append(message, k.program[:]...))
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			return err
		}
		delete(a.counts, k)
	}
	return nil
}

// program returns the name of a thread's program, and nothing if it has ended.
func (r *procReader) program(thread int) (name [commBytes]byte) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(thread)+"/comm", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return name
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, r.text[:])
	if err != nil {
		return name
	}
	copy(name[:], bytes.TrimSuffix(r.text[:n], []byte{'\n'}))
	return name
}

// decodeAttempt returns what a report of PID 1 says.
func decodeAttempt(b []byte) (RefusedSocket, error) {
	const size = 1 + 4*4 + commBytes
	if len(b) != size || kind(b[0]) != msgAttempt {
		return RefusedSocket{}, errProtocol
	}
	field := func(i int) uint32 { return binary.LittleEndian.Uint32(b[1+4*i:]) }
	program, _, _ := bytes.Cut(b[size-commBytes:], []byte{0})
	return RefusedSocket{Kind: socketKind(field(0), field(1), field(2)), Program: string(program), Count: int(max(field(3), 1))}, nil
}
