// Package netns makes network namespaces in which every address is local: whatever a program there
// connects to reaches a listener of ours, or nothing.
//
// A Namespace has a loopback interface and nothing else. A thread of this process stays in it
// and makes the sockets that are asked for. The caller passes these to a process that serves
// them from the host's network. An ordinary user needs a user namespace of the own with
// CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_BIND_SERVICE in it, and cannot leave the namespace
// with a thread that has entered it. So the thread ends with the Namespace.
package netns

import (
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// Namespace is a network namespace. It is safe for concurrent use until Close.
type Namespace struct {
	file  *os.File
	calls chan func()
}

// New makes a namespace. Errors: Unsupported, where this host refuses it.
func New() (*Namespace, error) {
	n := &Namespace{calls: make(chan func())}
	made := make(chan error, 1)
	thread.Go(func() { n.run(made) })
	if err := <-made; err != nil {
		return nil, err
	}
	return n, nil
}

// run makes the namespace on the calling thread and serves calls there.
func (n *Namespace) run(made chan<- error) {
	err := n.enter()
	made <- err
	if err != nil {
		return
	}
	for call := range n.calls {
		call()
	}
}

func (n *Namespace) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return errdefs.New(errdefs.Unsupported, "network namespace: %w", err)
	}
	if err := setUp(); err != nil {
		return errdefs.New(errdefs.Unsupported, "network namespace: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errdefs.New(errdefs.Internal, "network namespace: %w", err)
	}
	n.file = os.NewFile(uintptr(fd), "netns")
	return nil
}

// File is the namespace, for setns(2). It stays the Namespace's.
func (n *Namespace) File() *os.File { return n.file }

// Close lets the thread go. Sockets that were made stay.
func (n *Namespace) Close() error {
	close(n.calls)
	return n.file.Close()
}

// ListenTCP returns a listening socket at an address of the namespace. Errors: Exhausted;
// Unavailable, if a program inside has the port.
func (n *Namespace) ListenTCP(at netip.AddrPort) (*os.File, error) {
	return n.socket(func() (int, error) { return listenTCP(at) })
}

// ListenUDP returns a bound socket that tells of each datagram which address it was sent to.
// Errors: as of ListenTCP.
func (n *Namespace) ListenUDP(at netip.AddrPort) (*os.File, error) {
	return n.socket(func() (int, error) { return listenUDP(at) })
}

func (n *Namespace) socket(create func() (int, error)) (*os.File, error) {
	type result struct {
		fd  int
		err error
	}
	done := make(chan result, 1)
	n.calls <- func() {
		fd, err := create()
		done <- result{fd, err}
	}
	r := <-done
	switch {
	case errors.Is(r.err, unix.EADDRINUSE):
		return nil, errdefs.New(errdefs.Unavailable, "listen in the sandbox: %w", r.err)
	case r.err != nil:
		return nil, errdefs.New(errdefs.Exhausted, "listen in the sandbox: %w", r.err)
	}
	return os.NewFile(uintptr(r.fd), "listener"), nil
}
