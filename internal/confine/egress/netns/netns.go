// Package netns makes network namespaces in which every address is local: whatever a program there
// connects to reaches a listener of ours, or nothing.
//
// A Namespace has a loopback interface and nothing else. New makes one, Enter takes one that a
// runtime has made. A thread of this process stays in it and makes the sockets that are asked for.
// The caller passes these to a process that serves them from the host's network. An ordinary user
// needs a user namespace of the own with CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_BIND_SERVICE and
// CAP_NET_RAW in it, and cannot leave the namespace with a thread that has entered it. So the
// thread ends with the Namespace.
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
	watch *watch // nil: nobody else has the namespace
}

// New makes a namespace. Errors: Unsupported, where this host refuses it.
func New() (*Namespace, error) {
	return start((*Namespace).create)
}

// Enter takes a namespace that a runtime has made, in which nothing runs yet. For root only. It
// calls changed, at most once, when the namespace has another interface that is up: then addresses
// are no longer local to whoever asks for that interface. Errors: Unsupported, for a namespace that
// is this process's own or that has such an interface already.
func Enter(namespace *os.File, changed func(name string)) (*Namespace, error) {
	return start(func(n *Namespace) error { return n.enter(namespace, changed) })
}

// start has begin called on a thread that then serves calls.
func start(begin func(n *Namespace) error) (*Namespace, error) {
	n := &Namespace{calls: make(chan func())}
	begun := make(chan error, 1)
	thread.Go(func() {
		err := begin(n)
		begun <- err
		if err != nil {
			return
		}
		for call := range n.calls {
			call()
		}
	})
	if err := <-begun; err != nil {
		return nil, errdefs.New(errdefs.Unsupported, "network namespace: %w", err)
	}
	return n, nil
}

// create gives the calling thread a new namespace.
func (n *Namespace) create() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := setUp(); err != nil {
		return err
	}
	var err error
	n.file, err = current()
	return err
}

// enter takes the calling thread to a namespace, and watches that for interfaces.
func (n *Namespace) enter(namespace *os.File, changed func(name string)) error {
	own, err := current()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	if n.file, err = current(); err != nil {
		return err
	}
	if err = n.take(own, changed); err != nil {
		n.file.Close()
	}
	return err
}

func (n *Namespace) take(own *os.File, changed func(name string)) error {
	ours, err := own.Stat()
	if err != nil {
		return err
	}
	theirs, err := n.file.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(ours, theirs) {
		return errors.New("the sandbox is in the network of this process")
	}
	if n.watch, err = newWatch(); err != nil { // before the look, so that it misses nothing
		return err
	}
	for _, step := range []func() error{checkLinks, confineLocal, setUp} {
		if err := step(); err != nil {
			n.watch.close()
			return err
		}
	}
	n.watch.start(changed)
	return nil
}

// current opens the calling thread's namespace.
func current() (*os.File, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}

// File is the namespace, for setns(2). It stays the Namespace's.
func (n *Namespace) File() *os.File { return n.file }

// Close lets the thread go. Sockets that were made stay.
func (n *Namespace) Close() error {
	close(n.calls)
	if n.watch != nil {
		n.watch.close()
	}
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

// ReserveTCP returns a socket at an address of the namespace to which nobody can connect. While it
// is open, a program inside cannot listen at the port on all addresses. Errors: as of ListenTCP.
func (n *Namespace) ReserveTCP(at netip.AddrPort) (*os.File, error) {
	return n.socket(func() (int, error) { return bound(at, unix.SOCK_STREAM, exclusive) })
}

func (n *Namespace) socket(create func() (int, error)) (*os.File, error) {
	fd, err := n.call(create)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, errdefs.New(errdefs.Unavailable, "listen in the sandbox: %w", err)
	case err != nil:
		return nil, errdefs.New(errdefs.Exhausted, "listen in the sandbox: %w", err)
	}
	return os.NewFile(uintptr(fd), "listener"), nil
}

// call has the thread in the namespace make a socket.
func (n *Namespace) call(create func() (int, error)) (int, error) {
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
	return r.fd, r.err
}
