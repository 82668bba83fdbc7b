package supervise

import (
	"cmp"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/guest"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// detachedCommand is a command whose streams are the supervisor's own, so that it
// does not matter to it which clients come and go.
type detachedCommand struct {
	x       *execution
	streams [2]*ringBuffer // output and errors; a terminal has no errors
	input   *detachedInput
	copies  []*api.Output    // into the ring buffers
	logged  []io.WriteCloser // of a detached one: its streams in the output log

	ended chan struct{}
	exit  api.Exit // set before ended is closed
	err   error    // instead of exit
}

// detachedTable holds commands by their ids: those that run, and the last detached
// ones that have ended.
type detachedTable struct {
	mu   sync.Mutex
	byID map[string]*detachedCommand
}

// maxKept is how many commands that have ended are remembered.
const maxKept = 16

func (t *detachedTable) add(k *detachedCommand) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[string]*detachedCommand{}
	}
	t.byID[k.x.id] = k
}

func (t *detachedTable) remove(k *detachedCommand) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, k.x.id)
}

// get returns a command. Errors: NotFound.
func (t *detachedTable) get(id string) (*detachedCommand, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.byID[id]; k != nil {
		return k, nil
	}
	return nil, errdefs.New(errdefs.NotFound, "exec %q: no such command is kept", id)
}

// list returns the detached commands, the oldest first.
func (t *detachedTable) list() []*detachedCommand {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*detachedCommand
	for _, k := range t.byID {
		if k.x.command.Detached {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b *detachedCommand) int { return cmp.Compare(a.x.number, b.x.number) })
	return list
}

// trim forgets all but the last that have ended.
func (t *detachedTable) trim() {
	ended := slices.DeleteFunc(t.list(), func(k *detachedCommand) bool { return !k.isOver() })
	for _, k := range ended[:max(0, len(ended)-maxKept)] {
		t.remove(k)
	}
}

func (k *detachedCommand) isOver() bool {
	select {
	case <-k.ended:
		return true
	default:
		return false
	}
}

// keep gives a command that is about to start streams of ours. The command's
// ends are in inner.Files; the caller closes them when they have been passed on.
func (s *supervisor) keep(x *execution, inner *guest.Command) (*detachedCommand, error) {
	k := &detachedCommand{x: x, ended: make(chan struct{})}
	if x.command.TTY {
		master, number, err := s.terminals.open(x.command.Rows, x.command.Columns)
		if err != nil {
			return nil, err
		}
		inner.TTY = number
		terminal, err := pollable(master)
		if err != nil {
			return nil, err
		}
		k.input = &detachedInput{to: terminal, terminal: true}
		s.beginLogged(k.x, 1)
		s.copyFrom(k, 0, terminal)
		return k, nil
	}
	s.beginLogged(k.x, len(k.streams))
	for i := range inner.Files {
		r, w, err := os.Pipe()
		if err != nil {
			api.CloseAll(inner.Files[:]...)
			if k.input != nil {
				k.input.to.Close()
			}
			return nil, errdefs.New(errdefs.Exhausted, "pipe: %w", err)
		}
		if i == 0 {
			inner.Files[i], k.input = r, &detachedInput{to: w}
			continue
		}
		inner.Files[i] = w
		s.copyFrom(k, i-1, r)
	}
	return k, nil
}

// copyFrom keeps what comes from a stream's other end, in the output log too if the
// command is detached.
func (s *supervisor) copyFrom(k *detachedCommand, stream int, from *os.File) {
	k.streams[stream] = newRingBuffer()
	var to io.Writer = k.streams[stream]
	if k.x.command.Detached {
		logged := s.output.Stream(k.x.id, streamNames[stream])
		k.logged = append(k.logged, logged)
		to = io.MultiWriter(logged, to)
	}
	k.copies = append(k.copies, api.CopyOutput(to, from))
}

// pollable returns f as a file whose reading and writing closing it ends.
// It closes f.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "stream: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// finish says how the command ended, once all is kept that it wrote before.
func (k *detachedCommand) finish(exit api.Exit, err error) {
	for _, c := range k.copies {
		c.Finish()
		c.From.Close()
	}
	closeLogged(k.logged)
	for _, p := range k.streams {
		if p != nil {
			p.close()
		}
	}
	if k.input != nil {
		k.input.to.Close()
	}
	k.exit, k.err = exit, err
	close(k.ended)
}

// detachedInput is where the input of clients goes.
type detachedInput struct {
	to       *os.File
	terminal bool
}

// endOfFile is what a terminal takes for it, VEOF of termios(3) by default.
const endOfFile = "\x04"

// end tells the command that no input comes any more.
func (i *detachedInput) end() {
	if i.terminal {
		_, _ = io.WriteString(i.to, endOfFile) // it may have ended
		return
	}
	i.to.Close()
}

// attachment is a client of a detached command.
type attachment struct {
	k       *detachedCommand
	readers []*ringReader
	files   []*os.File // the client's pipes
	copying sync.WaitGroup
	typed   chan struct{} // closed when no input comes from this client any more
	gone    chan struct{} // closed when the client has left
	leaving sync.Once
}

// attach has a client read and write a command's streams: files are its pipes
// for input, output and errors; none, and it only waits. from is how much of
// output and errors it has already. lost is how much more is kept no longer.
// Errors: Invalid.
func (k *detachedCommand) attach(files []*os.File, from [2]int64) (a *attachment, lost int64, err error) {
	a = &attachment{k: k, typed: make(chan struct{}), gone: make(chan struct{})}
	if a.files, err = pipesOf(files); err != nil || len(files) == 0 {
		close(a.typed)
		return a, 0, err
	}
	for i, p := range k.streams {
		if p == nil {
			continue
		}
		r, missed := p.read(from[i])
		lost += missed
		a.readers = append(a.readers, r)
		a.copying.Go(func() {
			_, _ = io.Copy(a.files[i+1], r) // a client that takes no more has left
			r.close()
			a.files[i+1].Close()
		})
	}
	go func() {
		defer close(a.typed)
		if k.input != nil {
			_, _ = io.Copy(k.input.to, a.files[0]) // the command may take no more
		}
	}()
	return a, lost, nil
}

// pipesOf takes the three pipes of a client, or none. Errors: Invalid.
func pipesOf(files []*os.File) ([]*os.File, error) {
	if len(files) != 0 && len(files) != 3 {
		api.CloseAll(files...)
		return nil, errdefs.New(errdefs.Invalid, "attach: want three pipes, got %d descriptors", len(files))
	}
	var taken []*os.File
	for i, f := range files {
		err := guest.CheckPipe(f)
		if err == nil {
			f, err = pollable(f)
		}
		if err != nil {
			api.CloseAll(files[i:]...)
			api.CloseAll(taken...)
			return nil, err
		}
		taken = append(taken, f)
	}
	return taken, nil
}

// wait waits until the client has all that the command wrote, or has left.
func (a *attachment) wait() {
	a.copying.Wait()
	api.CloseAll(a.files...)
}

func (a *attachment) signal(sig unix.Signal) {
	if a.k.x.inside != nil { // a command of a session gets none
		a.k.x.signal(sig)
	}
}

// abandon lets the client go. The command goes on if it is detached.
func (a *attachment) abandon() {
	a.leaving.Do(func() {
		close(a.gone)
		for _, r := range a.readers {
			r.close()
		}
		api.CloseAll(a.files...)
	})
	if !a.k.x.command.Detached {
		a.k.x.end(api.ReasonStopped)
	}
}

// reported does what the client asks for besides.
func (a *attachment) reported(r api.Request) {
	input := a.k.input
	switch {
	case input == nil:
	case r.Op == api.OpResize && input.terminal && r.Size != nil:
		raw, err := input.to.SyscallConn()
		if err != nil {
			return
		}
		size := unix.Winsize{Row: r.Size.Rows, Col: r.Size.Columns}
		_ = raw.Control(func(fd uintptr) { _ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) }) // it may have ended
	case r.Op == api.OpEndInput:
		go func() { // a command that reads nothing must not keep its client from being heard
			<-a.typed
			input.end()
		}()
	}
}

// describe says what command it is and how it stands.
func (k *detachedCommand) describe() api.DetachedExec {
	d := api.DetachedExec{ID: k.x.id, Session: k.x.session, Argv: api.ToBytes(k.x.command.Argv), StartedAt: k.x.begun.UTC().Truncate(time.Millisecond)}
	if k.isOver() {
		exit := k.exit
		exit.Effects = api.Effects{} // for those who attach
		d.Exit = &exit
		if k.err != nil {
			d.Exit = &api.Exit{Signal: int(unix.SIGKILL), Reason: api.ReasonStopped}
		}
	}
	return d
}
