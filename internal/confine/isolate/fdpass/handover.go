// Package fdpass gives a program that inherits nothing from us what it would
// have inherited: a socket, a standard error and a seccomp filter.
//
// Outside, Listen makes a unix socket that is mounted into the sandbox, Accept
// waits for the one peer it is for, and Give passes the descriptors. Inside,
// Main takes them and becomes the program. The socket is of no use afterwards:
// its listener is closed and its name is gone.
package fdpass

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// Verb is the first argument that makes the binary run Main.
const Verb = "__handover"

// Offer is a socket at which one program is waited for.
type Offer struct {
	listener *net.UnixListener
	dir      *os.File
	name     string
}

// Listen makes a socket called name in dir that only user uid may connect to.
func Listen(dir, name string, uid int) (*Offer, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "handover: %w", err)
	}
	// By handle: a socket's name holds 107 bytes at most.
	path := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		d.Close()
		return nil, errdefs.New(errdefs.Internal, "handover: %w", err)
	}
	l.SetUnlinkOnClose(false)
	o := &Offer{listener: l, dir: d, name: name}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, uid, -1)); err != nil {
		o.Close()
		return nil, errdefs.New(errdefs.Internal, "handover: %w", err)
	}
	return o, nil
}

// Close ends the offer and removes the socket's name. It may be called twice.
func (o *Offer) Close() {
	o.listener.Close()
	_ = unix.Unlinkat(int(o.dir.Fd()), o.name, 0) // gone already the second time
	o.dir.Close()
}

// Peer is a program that has come for what it is to get.
type Peer struct {
	conn *net.UnixConn
	// PIDFD is the program, PID its number in our pid namespace.
	PIDFD *os.File
	PID   int
}

// Accept waits for the program, which has to be process pid of user uid, and
// closes the offer. Errors: Deadline, Canceled; Denied, if another came.
func (o *Offer) Accept(ctx context.Context, pid, uid int) (*Peer, error) {
	defer o.Close()
	stop := context.AfterFunc(ctx, func() { o.listener.SetDeadline(time.Unix(1, 0)) })
	conn, err := o.listener.AcceptUnix()
	stop()
	if err != nil {
		kind := errdefs.Canceled
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			kind = errdefs.Deadline
		}
		return nil, errdefs.New(kind, "handover: nobody came: %w", err)
	}
	p := &Peer{conn: conn, PID: pid}
	if err := p.identify(uid); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// identify takes hold of the peer. It connected as that process; as its end is
// open still, it is that process now.
func (p *Peer) identify(uid int) error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return errdefs.New(errdefs.Internal, "handover: %w", err)
	}
	var (
		cred *unix.Ucred
		fd   = -1
	)
	control := raw.Control(func(s uintptr) {
		if cred, err = unix.GetsockoptUcred(int(s), unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return
		}
		if int(cred.Pid) != p.PID || int(cred.Uid) != uid {
			err = fmt.Errorf("process %d of user %d came, want process %d of user %d", cred.Pid, cred.Uid, p.PID, uid)
			return
		}
		if fd, err = unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK); err != nil {
			return
		}
		if has, pollErr := pollfd.Wait(int(s), unix.POLLRDHUP, 0); has != 0 || pollErr != nil {
			err = errors.New("it left")
		}
	})
	if err = errors.Join(control, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return errdefs.New(errdefs.Denied, "handover: %w", err)
	}
	p.PIDFD = os.NewFile(uintptr(fd), "pidfd")
	return nil
}

// Give passes filter, the seccomp program, and the program's descriptors.
func (p *Peer) Give(filter []byte, guest, stderr *os.File) error {
	rights := unix.UnixRights(int(guest.Fd()), int(stderr.Fd()))
	if _, _, err := p.conn.WriteMsgUnix(filter, rights, nil); err != nil {
		return errdefs.New(errdefs.Unavailable, "handover: %w", err)
	}
	return nil
}

// Close leaves the peer alone.
func (p *Peer) Close() { p.conn.Close() }
