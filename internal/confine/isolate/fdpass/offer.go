// Package fdpass passes a socket, a standard error and a seccomp filter to a program that
// does not inherit them.
//
// Outside, Listen makes a unix socket that is mounted into the sandbox, Accept waits for
// the one expected peer, and Give passes the descriptors. Inside, Main receives them and
// executes the program. Afterwards the listener is closed and the socket's name is removed.
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
	"github.com/agentfense/agentfense/internal/lib/pidfd"
	"github.com/agentfense/agentfense/internal/lib/pollfd"
)

// Verb is the first argument that makes the binary run Main.
const Verb = "__handover"

// Offer is a socket that waits for one program.
type Offer struct {
	listener *net.UnixListener
	dir      *os.File
	name     string
}

// Listen makes a socket name in dir to which only user uid may connect.
func Listen(dir, name string, uid int) (*Offer, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "pass descriptors: %w", err)
	}
	// By handle, because a socket's address has at most 107 bytes.
	path := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		d.Close()
		return nil, errdefs.New(errdefs.Internal, "pass descriptors: %w", err)
	}
	l.SetUnlinkOnClose(false)
	o := &Offer{listener: l, dir: d, name: name}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, uid, -1)); err != nil {
		o.Close()
		return nil, errdefs.New(errdefs.Internal, "pass descriptors: %w", err)
	}
	return o, nil
}

// Close ends the offer and removes the socket's name. It may be called twice.
func (o *Offer) Close() {
	o.listener.Close()
	_ = unix.Unlinkat(int(o.dir.Fd()), o.name, 0) // the second call finds no name
	o.dir.Close()
}

// Peer is the program that connected.
type Peer struct {
	conn *net.UnixConn
	// PIDFD refers to the program, PID is its pid in our pid namespace.
	PIDFD *os.File
	PID   int
}

// Accept waits for the program, which must be process pid of user uid, and closes the
// offer. Errors: Deadline, Canceled; Denied, if another process connected.
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
		return nil, errdefs.New(kind, "pass descriptors: no connection: %w", err)
	}
	p := &Peer{conn: conn, PID: pid}
	if err := p.identify(uid); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// identify opens a pidfd of the peer. The peer connected with its pid. Because its end of
// the socket is still open, the pid is not reused.
func (p *Peer) identify(uid int) error {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return errdefs.New(errdefs.Internal, "pass descriptors: %w", err)
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
			err = fmt.Errorf("process %d of user %d connected, want process %d of user %d", cred.Pid, cred.Uid, p.PID, uid)
			return
		}
		if fd, err = unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK); err != nil {
			return
		}
		if has, pollErr := pollfd.Wait(int(s), unix.POLLRDHUP, 0); has != 0 || pollErr != nil {
			err = errors.New("the process has ended")
		}
	})
	if err = errors.Join(control, err); err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return errdefs.New(errdefs.Denied, "pass descriptors: %w", err)
	}
	p.PIDFD = os.NewFile(uintptr(fd), "pidfd")
	return nil
}

// NetNS opens the peer's network namespace. Errors: Unavailable, if the peer has ended.
func (p *Peer) NetNS() (*os.File, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		return nil, errdefs.New(errdefs.Unavailable, "network namespace of PID 1: %w", err)
	}
	if err := pidfd.Signal(p.PIDFD, 0); err != nil { // the namespace may be that of another process
		f.Close()
		return nil, errdefs.New(errdefs.Unavailable, "network namespace of PID 1: %w", err)
	}
	return f, nil
}

// Give passes filter, the seccomp program, and the program's descriptors.
func (p *Peer) Give(filter []byte, guest, stderr *os.File) error {
	rights := unix.UnixRights(int(guest.Fd()), int(stderr.Fd()))
	if _, _, err := p.conn.WriteMsgUnix(filter, rights, nil); err != nil {
		return errdefs.New(errdefs.Unavailable, "pass descriptors: %w", err)
	}
	return nil
}

// Close closes the connection. The peer keeps running.
func (p *Peer) Close() { p.conn.Close() }
