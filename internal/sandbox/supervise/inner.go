package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/narrow"
)

// Bounds of what programs inside can make this process do by the socket for inner sandboxes.
const (
	// maxInner is how many inner sandboxes there may be at once, those that are starting included.
	maxInner = 16
	// requestPatience is how long a request may take to arrive, and replyPatience a reply to leave.
	requestPatience = 10 * time.Second
	replyPatience   = 5 * time.Second
	// narrowPatience is how long the narrowing may take.
	narrowPatience = 30 * time.Second
)

// innerTable has the inner sandboxes: those that programs inside ask for by bubblewrap's command
// line, to run a command with less than the sandbox has.
type innerTable struct {
	dir       string // a tmpfs; empty if there can be none
	shim      string // the program that takes bubblewrap's place
	listener  *net.UnixListener
	temporary map[string]string // as in isolate.Spec

	seats   chan struct{} // one for each that there may be
	running sync.WaitGroup
	stop    context.CancelFunc

	narrowing sync.Mutex // one at a time, and guards what follows
	next      int
	sandboxes map[*innerSandbox]struct{}
	points    map[pointKey]*sharedPoint
}

// pointKey names a point, which inner sandboxes share.
type pointKey struct {
	area string
	path inner.Text
}

// sharedPoint is a point with the number of inner sandboxes that need it.
type sharedPoint struct {
	key   pointKey
	point narrow.Point
	users int
}

// serveInner accepts requests until tearDown.
func (s *supervisor) serveInner() {
	t := &s.narrower
	if t.listener == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.stop = cancel
	t.seats = make(chan struct{}, maxInner)
	t.running.Go(func() {
		acceptAll(t.listener, s.log, func(uc *net.UnixConn) {
			select {
			case t.seats <- struct{}{}:
			default:
				_ = reply(uc, inner.Reply{Error: fmt.Sprintf("%d commands run in inner sandboxes, and more are not possible at once", maxInner), Status: 1})
				uc.Close()
				return
			}
			t.running.Go(func() {
				defer uc.Close()
				defer func() { <-t.seats }() // before the peer sees the end
				s.handleInner(ctx, uc)
			})
		})
	})
}

// endInner ends the inner sandboxes and waits for their ends.
func (s *supervisor) endInner() {
	t := &s.narrower
	if t.stop == nil {
		return
	}
	t.listener.Close()
	t.stop()
	s.warn("inner sandboxes: end", within(letGoPatience, func() error {
		t.running.Wait()
		return nil
	}))
}

// handleInner serves one connection: a request, then signals. Its end kills the inner sandbox.
func (s *supervisor) handleInner(ctx context.Context, uc *net.UnixConn) {
	var end guest.Exit
	r, err := s.readInner(uc)
	if err == nil {
		end, err = s.runInner(ctx, uc, r)
	}
	if err == nil {
		_ = reply(uc, inner.Reply{Ended: true, Code: end.Code, Signal: end.Signal}) // the program may have ended
		return
	}
	status := 1
	if startErr := (*api.CommandError)(nil); errors.As(err, &startErr) {
		status = 127
		if startErr.NotExecutable {
			status = 126
		}
	}
	if errdefs.Is(err, errdefs.Internal) {
		s.log.Error("inner sandbox", "err", err)
	}
	_ = reply(uc, inner.Reply{Error: err.Error(), Status: status}) // the same
}

// readInner reads the request of a program of this sandbox.
func (s *supervisor) readInner(uc *net.UnixConn) (*inner.Request, error) {
	if err := s.checkPeer(uc); err != nil {
		return nil, err
	}
	_ = uc.SetReadDeadline(time.Now().Add(requestPatience))
	defer uc.SetReadDeadline(time.Time{})
	var r inner.Request
	if _, err := inner.Requests.Receive(uc, &r); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "no request: %w", err)
	}
	return &r, r.Check()
}

// checkPeer refuses a peer that is not a process of the sandbox itself, as one of an inner sandbox,
// which could ask for more than it has.
func (s *supervisor) checkPeer(uc *net.UnixConn) error {
	refused := errdefs.New(errdefs.Denied, "only programs of the sandbox itself can start inner sandboxes")
	pid, err := peerOf(uc)
	if err != nil {
		return refused
	}
	var theirs, ours unix.Stat_t
	if unix.Stat(pidNamespace(pid), &theirs) != nil || unix.Stat(pidNamespace(s.process.PID()), &ours) != nil {
		return refused
	}
	if theirs.Dev != ours.Dev || theirs.Ino != ours.Ino {
		return refused
	}
	return nil
}

func pidNamespace(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/pid" }

// peerOf returns the pid of the process that connected.
func peerOf(uc *net.UnixConn) (int, error) {
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { peer, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// reply sends a message with descriptors. It does not wait for a peer that does not read.
func reply(uc *net.UnixConn, r inner.Reply, files ...*os.File) error {
	_ = uc.SetWriteDeadline(time.Now().Add(replyPatience))
	return inner.Replies.Send(uc, r, files...)
}

// prepareInner makes what inner sandboxes need, before the first process inside exists: a directory
// of mounts, the socket, the program in bubblewrap's place, and the temporary directories that they
// share with the sandbox. A limit of processes by user namespace would hold for each inner sandbox
// anew, so there are none then.
func (s *supervisor) prepareInner(context.Context) error {
	if s.docker() || s.processLimit > 0 {
		return nil
	}
	t := &s.narrower
	dir := filepath.Join(s.box.Dir(), innerDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return errdefs.New(errdefs.Internal, "inner sandboxes: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
		return errdefs.New(errdefs.Unsupported, "inner sandboxes: mount tmpfs: %w", err)
	}
	program, err := s.programInside()
	if err != nil {
		return err
	}
	shim, err := mountShim(dir, program)
	if err != nil {
		s.log.Warn("programs inside cannot start inner sandboxes with bwrap", "err", err)
		return nil
	}
	t.dir, t.shim = dir, shim
	t.sandboxes, t.points = map[*innerSandbox]struct{}{}, map[pointKey]*sharedPoint{}
	if err := s.mountTemporary(); err != nil {
		return err
	}
	handle, err := os.Open(dir)
	if err != nil {
		return errdefs.New(errdefs.Internal, "inner sandboxes: %w", err)
	}
	defer handle.Close()
	t.listener, err = net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", handle.Fd(), innerSocket)})
	if err != nil {
		return errdefs.New(errdefs.Internal, "inner sandboxes: socket: %w", err)
	}
	t.listener.SetUnlinkOnClose(false)
	return nil
}
