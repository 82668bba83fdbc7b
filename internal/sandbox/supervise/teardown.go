package supervise

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// auditPatience is how long the end of a sandbox waits for a full disk to take
// the last audit records. A gap record then accounts for them.
const auditPatience = 5 * time.Second

// letGoPatience bounds each step of letting go that others can hold up: by
// stopping bubblewrap, or by keeping the view mounted in a namespace copied
// from ours, whose server then goes on.
const letGoPatience = 5 * time.Second

// tearDown lets go of everything, from the top down, as far as it was built.
// It always returns: the end of this process, which follows, ends what is left.
func (s *supervisor) tearDown() {
	if s.listener != nil {
		s.warn("control socket: remove", unix.Unlinkat(int(s.dir.Fd()), api.ControlSocket, 0))
		s.listener.Close()
	}
	s.endAsking() // no process can end while it waits in the view
	s.grants.stop()
	s.locks.stop()
	s.endBoard()
	s.endInner()
	s.stopWatching()
	ended := true // all that we have started
	if s.guest != nil {
		s.guest.Settle(settlePatience)
	}
	if s.process != nil {
		s.warn("processes: kill", s.process.Kill())
		err := within(letGoPatience, func() error {
			<-s.process.Done()
			return nil
		})
		s.warn("processes: wait", err)
		ended = err == nil
	}
	if s.guest != nil {
		s.guest.Close()
	}
	networkEnded := s.endNetwork()
	// A command's end is told with what the group has counted, and in the audit log.
	s.warn("commands: end", within(letGoPatience, s.awaitAnswers))
	s.warn("sessions: end", within(letGoPatience, s.awaitSessions))
	if s.group != nil {
		s.warn("cgroup: kill", s.group.Kill())
		s.warn("cgroup: delete", s.group.Delete())
	}
	s.unmount("view: unmount", s.view)
	s.unmount("kept home: unmount", s.keptHome.view)
	if s.docker() && s.box != nil {
		s.warn("mounts: clear", launch.ClearMounts(s.box.Dir()))
	}
	layersClosed := s.closeLayers() // which waits for the disk, as the audit log does
	s.warn("egress: wait", within(letGoPatience, func() error {
		<-networkEnded
		return nil
	}))
	if s.audit != nil {
		if s.process != nil {
			s.append(s.lastEvents()...)
		}
		ctx, cancel := context.WithTimeout(context.Background(), auditPatience)
		done := s.home.MakeRoom()
		s.warn("audit: close", s.audit.Close(ctx))
		done()
		cancel()
		s.warn("audit: close log", s.auditLog.Close())
	}
	layersClosed.Wait()
	if s.output != nil {
		s.warn("output log: close", s.output.Close())
	}
	s.leaveBoard() // nothing runs that could write what it has locked
	if ended {
		s.warn("lock", s.lock.SetSupervised(false))
	}
	s.lock.Release()
	close(s.gone)
}

// stopWatching begins the end of the watches for changes of sources, which takes longer than all
// else. Whoever could still use a view is killed next.
func (s *supervisor) stopWatching() {
	views := []*fusefs.FS{s.view, s.keptHome.view}
	for _, m := range s.mounts {
		views = append(views, m.view)
	}
	for _, view := range views {
		if view != nil {
			view.StopWatching()
		}
	}
}

// closeLayers closes the layers of all views meanwhile.
func (s *supervisor) closeLayers() *sync.WaitGroup {
	var all sync.WaitGroup
	all.Go(func() { s.warn("kept home: close", s.keptHome.close()) })
	for _, m := range s.mounts {
		all.Go(func() { s.warn("mounts: close", m.Close()) })
	}
	if s.stack != nil {
		all.Go(func() { s.warn("layers: close", s.stack.Close()) })
	}
	return &all
}

// unmount ends a file system of ours, nil for none.
func (s *supervisor) unmount(what string, fs *fusefs.FS) {
	if fs == nil {
		return
	}
	unmount := fs.Unmount
	if s.docker() { // it is in the host's namespace, of which whatever runs there has copies
		unmount = fs.Abort
	}
	s.warn(what, within(letGoPatience, unmount))
}

func (s *supervisor) warn(what string, err error) {
	if err != nil {
		s.log.Warn(what, "err", err)
	}
}

// within waits for step. Errors: those of step; Unavailable when it takes
// longer than patience; it goes on then.
func within(patience time.Duration, step func() error) error {
	done := make(chan error, 1)
	go func() { done <- step() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errdefs.New(errdefs.Unavailable, "not done after %v", patience)
	}
}
