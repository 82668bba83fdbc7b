package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/confine/isolate"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// runInner runs one command in an inner sandbox, until its end, or that of the peer. Nothing of the
// inner sandbox is left when it returns.
func (s *supervisor) runInner(ctx context.Context, uc *net.UnixConn, r *inner.Request) (guest.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := make(chan unix.Signal)
	go func() {
		defer cancel()
		listenInner(ctx, uc, signals)
	}()
	n, err := s.narrowFor(ctx, r)
	defer s.widenAgain(n)
	if err != nil {
		return guest.Exit{}, err
	}
	process, conn, err := s.startInner(ctx, n, r)
	if err != nil {
		return guest.Exit{}, err
	}
	defer func() {
		conn.Settle(settlePatience)
		conn.Close()
		s.warn("inner sandbox: kill", process.Kill())
		<-process.Done()
	}()
	x, err := s.execInner(ctx, uc, conn, r)
	if err != nil {
		return guest.Exit{}, err
	}
	return awaitInner(ctx, x, signals)
}

// listenInner passes the signals of the peer on, until it has ended or says what none is.
func listenInner(ctx context.Context, uc *net.UnixConn, signals chan<- unix.Signal) {
	var b [1]byte
	for {
		if n, err := uc.Read(b[:]); n != 1 || err != nil {
			return
		}
		select {
		case signals <- unix.Signal(b[0]):
		case <-ctx.Done():
			return
		}
	}
}

// awaitInner waits for the command, and passes signals on to it meanwhile.
func awaitInner(ctx context.Context, x *guest.Exec, signals <-chan unix.Signal) (guest.Exit, error) {
	ended := make(chan struct{})
	var end guest.Exit
	var err error
	go func() {
		defer close(ended)
		end, err = x.Wait(ctx)
	}()
	for {
		select {
		case sig := <-signals:
			_ = x.Signal(sig) // the command may have ended
		case <-ended:
			if errdefs.Is(err, errdefs.Unavailable) { // killed with its sandbox
				return guest.Exit{Signal: int(unix.SIGKILL)}, nil
			}
			return end, err
		}
	}
}

// startInner starts the process tree.
func (s *supervisor) startInner(ctx context.Context, n *innerSandbox, r *inner.Request) (isolate.Process, *guest.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	program, err := s.programInside()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs, err := guest.Pair()
	if err != nil {
		return nil, nil, err
	}
	spec := s.innerSpec(program, theirs, n, r)
	if spec.Net == isolate.NetNone && !r.NoNet { // that of the sandbox, where its other programs may listen
		network, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", s.process.PID()))
		if err != nil {
			api.CloseAll(ours, theirs)
			return nil, nil, errdefs.New(errdefs.Internal, "network of the sandbox: %w", err)
		}
		defer network.Close()
		spec.Net, spec.NetNS = isolate.NetNamed, network
	}
	process, err := s.isolator().Start(ctx, spec)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	conn := guest.NewConn(ours, s.onSocket)
	if err := conn.Ready(ctx); err != nil {
		conn.Close()
		s.warn("inner sandbox: kill", process.Kill())
		<-process.Done()
		return nil, nil, errors.Join(process.Wait(), err)
	}
	return process, conn, nil
}

// innerSpec is that of the sandbox, with less.
func (s *supervisor) innerSpec(program string, theirs *os.File, n *innerSandbox, r *inner.Request) isolate.Spec {
	spec := s.spec(program, theirs)
	spec.ID, spec.Within = "", string(s.record.ID)
	spec.View, spec.ViewName = filepath.Join(n.dir, innerViews), mountspec.Workspace
	spec.Mounts = slices.DeleteFunc(slices.Clone(spec.Mounts), func(m isolate.Mount) bool {
		return m.View == "" && slices.Contains(n.hidden, m.Target)
	})
	if spec.HomeDir != "" {
		spec.HomeDir = filepath.Join(n.dir, launch.HomeViewDir)
	}
	spec.Temporary = map[string]string{}
	for path := range s.narrower.temporary {
		spec.Temporary[path] = filepath.Join(n.dir, innerTemporary+path)
	}
	spec.Covered = n.covered
	spec.DevPTS = "" // another's terminals are not for it
	spec.Stderr = nil
	spec.Hostname = string(r.Hostname)
	if s.group != nil {
		spec.Cgroup = s.group.Add
	}
	if r.NoNet {
		spec.Net, spec.NetNS = isolate.NetNone, nil
	}
	spec.Shim = &isolate.Shim{Program: s.narrower.shim}
	return spec
}

// execInner starts the command and gives the peer the ends of its streams.
func (s *supervisor) execInner(ctx context.Context, uc *net.UnixConn, conn *guest.Conn, r *inner.Request) (*guest.Exec, error) {
	command := guest.Command{TTY: -1}
	for _, arg := range r.Command {
		command.Argv = append(command.Argv, string(arg))
	}
	var theirs [3]*os.File
	for i := range command.Files {
		read, write, err := os.Pipe()
		if err != nil {
			api.CloseAll(append(command.Files[:], theirs[:]...)...)
			return nil, errdefs.New(errdefs.Exhausted, "inner sandbox: %w", err)
		}
		if command.Files[i], theirs[i] = write, read; i == 0 {
			command.Files[i], theirs[i] = read, write
		}
	}
	defer api.CloseAll(append(command.Files[:], theirs[:]...)...)
	pid, err := peerOf(uc)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "inner sandbox: %w", err)
	}
	owner := s.owners.Find(pid)
	x, err := s.inFirstDir(ctx, conn, command, r, func(leader int) error {
		if owner != nil {
			s.owners.Add(leader, owner)
		}
		return nil
	})
	if err != nil {
		return nil, startError(err)
	}
	if owner != nil {
		go func() {
			<-x.Done()
			s.owners.Remove(x.HostPID(), owner)
		}()
	}
	if err := reply(uc, inner.Reply{Started: true}, theirs[:]...); err != nil {
		return nil, errdefs.New(errdefs.Canceled, "inner sandbox: the program that asked has ended")
	}
	return x, nil
}

// inFirstDir starts the command in the first directory that it can enter.
func (s *supervisor) inFirstDir(ctx context.Context, conn *guest.Conn, command guest.Command, r *inner.Request, placed func(int) error) (x *guest.Exec, err error) {
	for _, dir := range r.Dirs {
		command.Dir = string(dir)
		command.Env = []string{"PWD=" + string(dir)}
		for _, v := range r.Env {
			if !strings.HasPrefix(string(v), "PWD=") {
				command.Env = append(command.Env, string(v))
			}
		}
		if x, err = conn.Exec(ctx, command, placed); !errors.Is(err, guest.ErrDirectory) {
			return x, err
		}
	}
	return nil, err
}
