package egress

import (
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/authority"
	"github.com/agentfense/agentfense/internal/confine/egress/denial"
	"github.com/agentfense/agentfense/internal/confine/egress/forwardproxy"
	"github.com/agentfense/agentfense/internal/confine/egress/publish"
	"github.com/agentfense/agentfense/internal/confine/egress/question"
	"github.com/agentfense/agentfense/internal/confine/egress/quota"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// An order is what the supervisor tells the egress process. The first one has the rules and, as
// descriptors, the resolver's sockets. Each later one has other rules, or gives a host its address
// and the listeners there, or says that it gets none, or answers a question, or asks to acknowledge
// all before it.
type order struct {
	SetRules    bool     `json:"set_rules,omitempty"`
	Rules       []string `json:"rules,omitempty"`
	Packets     int      `json:"packets,omitempty"`     // how many of the sockets are UDP; these come first
	Acknowledge uint64   `json:"acknowledge,omitempty"` // a number for report.Obeyed

	// Secrets come with the first order; Handover brings their values, in descriptors.
	Secrets  []wireSecret `json:"secrets,omitempty"`
	Handover bool         `json:"handover,omitempty"`

	// Authority comes with the first order, if connections are to be opened. With Roots the last
	// descriptor, or that before those of the refusals, is a file of certificates.
	Authority *authority.Pair `json:"authority,omitempty"`
	Roots     bool            `json:"roots,omitempty"`

	// Proxy comes with the first order.
	Proxy forwardproxy.Settings `json:"proxy"`

	Host    string     `json:"host,omitempty"`
	Addr    netip.Addr `json:"addr"`
	Ports   []uint16   `json:"ports,omitempty"` // of the listeners, in their order
	Refused string     `json:"refused,omitempty"`

	// Checked is the number of a report.Check; Refused says why the port may not be used.
	Checked uint64 `json:"checked,omitempty"`

	// Refusals is how many of the first order's descriptors, the last ones, have what the kernel
	// refuses.
	Refusals int `json:"refusals,omitempty"`

	// Publish comes with the listener of a port.
	Publish *publish.Port `json:"publish,omitempty"`

	// Sockets is the number of a report.Sockets. The sockets come with it.
	Sockets uint64 `json:"sockets,omitempty"`
	// Limits come with the first order, as quota.Set writes them. Quota answers report.Use.
	Limits string        `json:"limits,omitempty"`
	Used   uint64        `json:"used,omitempty"` // the number of a report.Use
	Quota  *quota.Answer `json:"quota,omitempty"`
	// Permits, of the first order, has hosts that no rule allows asked for. Permitted is the number
	// of a report.Permit; Refused is set if the answer is no.
	Permits   bool   `json:"permits,omitempty"`
	Permitted uint64 `json:"permitted,omitempty"`
}

// A report is what the egress process tells the supervisor: one of its fields.
type report struct {
	Ready  bool   `json:"ready,omitempty"`
	Obeyed uint64 `json:"obeyed,omitempty"` // the number of an order to acknowledge
	Took   bool   `json:"took,omitempty"`   // values of secrets
	All    bool   `json:"all,omitempty"`    // Took, and none is missing now
	Ask    string `json:"ask,omitempty"`    // a host that is allowed and has no address yet
	// Check asks, by a number, whether a connection to this port of localhost may be used.
	Check  uint64   `json:"check,omitempty"`
	Port   uint16   `json:"port,omitempty"`
	Opened *opened  `json:"opened,omitempty"`
	Closed []closed `json:"closed,omitempty"`
	Denied *Denied  `json:"denied,omitempty"`
	// Sockets asks, by a number, for sockets inside.
	Sockets uint64         `json:"sockets,omitempty"`
	Inbound *publish.Event `json:"inbound,omitempty"`
	// Use asks, by a number, to use something that is limited.
	Use    uint64        `json:"use,omitempty"`
	Wanted *question.Use `json:"wanted,omitempty"`
	// Permit asks, by a number, whether Host may be reached, which no rule allows.
	Permit uint64 `json:"permit,omitempty"`
	Host   string `json:"host,omitempty"`
}

// opened tells of a connection that has carried nothing yet, or that could not be made.
type opened struct {
	ID uint64 `json:"id"`
	Allowed
}

// closed tells how much a connection carried.
type closed struct {
	ID       uint64 `json:"id"`
	Sent     int64  `json:"sent"`
	Received int64  `json:"received"`
	Requests int64  `json:"requests,omitempty"` // of HTTP, where they are seen
}

// Allowed is a connection that was let through.
type Allowed struct {
	Host  string     `json:"host"`
	Port  uint16     `json:"port"`
	Addr  netip.Addr `json:"addr"` // where it went
	Rule  string     `json:"rule"`
	Proxy string     `json:"proxy,omitempty"` // HOST:PORT of the proxy by which it was made, which has looked the name up if Addr is not valid
	Error string     `json:"error,omitempty"` // why it was not made
	// Sent and Received are bytes, by and to the sandbox; -1 if that is not known.
	Sent     int64 `json:"-"`
	Received int64 `json:"-"`
	// Requests are those of HTTP, 0 where they are not seen.
	Requests int64 `json:"-"`
}

// Denied is what was refused.
type Denied = denial.Denied

// denialTable counts what the process refuses.
type denialTable struct{ denial.Table }

func (t *denialTable) note(host string, port uint16, reason string, weight int) {
	t.Note(Denied{Host: host, Port: port, Reason: reason, Count: weight})
}

// maxMessage bounds a message in bytes. The rules are the longest one.
const maxMessage = 256 << 10

// maxFiles bounds the descriptors of a message (SCM_MAX_FD of the kernel is 253): a host has at
// most a listener for each rule.
const maxFiles = 250

// wire is one end of the socket between the two. One goroutine reads it; a message is written
// whole, whoever writes.
type wire struct{ file *os.File }

// buffers are for messages to read. A new one for each message would take longer to clear than the
// message takes to read.
var buffers = sync.Pool{New: func() any { return new([maxMessage]byte) }}

// wirePair makes the socket. Both ends wait in Go's poller.
func wirePair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, errdefs.New(errdefs.Exhausted, "egress: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "egress"), os.NewFile(uintptr(fds[1]), "egress"), nil
}

// send sends a message with descriptors, which stay the caller's.
func (w wire) send(message any, files ...*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			control(f, func(fd int) { fds[i] = fd })
		}
		rights = unix.UnixRights(fds...)
	}
	raw, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		_, sendErr = unix.SendmsgN(int(fd), text, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sendErr, unix.EAGAIN) && !errors.Is(sendErr, unix.EINTR)
	})
	return errors.Join(err, sendErr)
}

// receive reads a message into to. Descriptors that came with it are the caller's. Errors: io.EOF
// when the peer is gone.
func (w wire) receive(to any) ([]*os.File, error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	buffer := buffers.Get().(*[maxMessage]byte)
	defer buffers.Put(buffer)
	var (
		text       = buffer[:]
		oob        = make([]byte, unix.CmsgSpace(4*maxFiles))
		n, oobn    int
		flags      int
		receiveErr error
	)
	err = raw.Read(func(fd uintptr) bool {
		n, oobn, flags, _, receiveErr = unix.Recvmsg(int(fd), text, oob, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(receiveErr, unix.EAGAIN) && !errors.Is(receiveErr, unix.EINTR)
	})
	if err = errors.Join(err, receiveErr); err != nil {
		return nil, err
	}
	files, err := filesOf(oob[:oobn])
	switch {
	case err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errdefs.New(errdefs.Internal, "egress: a message is too long")
	case err == nil && n == 0:
		err = io.EOF
	case err == nil:
		err = json.Unmarshal(text[:n], to)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

// filesOf takes the descriptors from control messages.
func filesOf(oob []byte) ([]*os.File, error) {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range controls {
		fds, err := unix.ParseUnixRights(&controls[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return files, nil
}

// control calls do with the descriptor, and leaves the file in Go's poller, unlike Fd.
func control(f *os.File, do func(fd int)) {
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) }) // a closed file has none
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
