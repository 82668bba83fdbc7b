package guest

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ExecMain is the leader of one exec. It does not return. It exits when none of
// its descendants is left.
//
// Until then it is the subreaper of its descendants, so background processes of a command live on
// until the sandbox ends or the exec is killed. Killing a leader makes its descendants children of
// PID 1, which kills them all.
//
// A leader whose command and all its descendants are gone may wait for another command. It then has
// no children, and no process inside can look into it or trace it. A waiting leader that does not
// wake at once is killed and replaced. The leader of a session's shell receives more pipes later,
// as leases, and ends what a command of the session has started.
func ExecMain() {
	harden()
	unix.CloseOnExec(socketFD)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		die("become a subreaper", err)
	}
	if err := limitFiles(); err != nil {
		die("limit the open files", err)
	}
	l := &leader{buffer: make([]byte, 1+pieceBytes), next: make(chan Command)}
	command, err := l.greet()
	if err != nil {
		os.Exit(1)
	}
	takeThreads()
	l.lead(command)
	time.AfterFunc(idleAfter, DropText)
	go l.listen()
	for range maxCommands {
		l.reap()
		if !command.Rest {
			break
		}
		l.resting.Store(true)
		report(encode(msgRest))
		command = <-l.next
		l.lead(command)
	}
	l.reap()
	os.Exit(0)
}

// takeThreads has the runtime make the threads that a leader will need while the
// command may hold all processes there may be: the runtime ends a program that gets
// no thread. Those that wait in a system call keep theirs, and the timer needs one.
func takeThreads() {
	const enough = 3 // besides this one: the reaper, the listener, the timer
	var all sync.WaitGroup
	all.Add(enough)
	for range enough {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			all.Done()
			all.Wait()
		}()
	}
	all.Wait()
}

// maxCommands bounds for how many commands more a leader rests: its memory is
// never collected.
const maxCommands = 50

// greet says that the leader is there and returns its command.
func (l *leader) greet() (Command, error) {
	if err := sendRaw(socketFD, encode(msgHello)); err != nil {
		return Command{}, err
	}
	return l.receiveCommand()
}

// lead starts a command. Where that fails the leader ends.
func (l *leader) lead(command Command) {
	l.tty = command.TTY >= 0
	at, err := l.start(command)
	if err != nil {
		report(binary.LittleEndian.AppendUint32([]byte{byte(msgFailed), byte(at)}, uint32(errnoOf(err))))
		os.Exit(1)
	}
	l.letGo()
	l.ended.Store(false)
	report(encode(msgStarted))
}

// report sends what a supervisor that is still there wants to know. If it is
// not, PID 1 is about to end.
func report(message []byte) { _ = sendRaw(socketFD, message) }

// receiveCommand puts the pieces of a command together. After a long one the
// leader does not rest, because it keeps the memory.
func (l *leader) receiveCommand() (Command, error) {
	var payload []byte
	for {
		piece, fds, err := receiveRaw(socketFD, l.buffer)
		if err != nil {
			return Command{}, err
		}
		if len(fds) > 0 || kindOf(piece) != msgCommand || len(payload) > maxPayload {
			return Command{}, errProtocol
		}
		payload = append(payload, piece[1:]...)
		if len(piece) < len(l.buffer) {
			c, err := decodeCommand(payload)
			c.Rest = c.Rest && len(payload) < pieceBytes
			return c, err
		}
	}
}

// leader is a leader's state. One goroutine starts commands and reaps, another
// listens.
type leader struct {
	pid     int // of the command, which leads a session and a process group
	tty     bool
	ended   atomic.Bool // the command; pid and tty are the reaper's then
	resting atomic.Bool
	next    chan Command // for the one that rests
	loans   leases
	buffer  []byte // the listener's, once there is one
}

// start starts the command as the leader of a new session, on its terminal if
// it has one. Where it fails it says at which stage.
func (l *leader) start(c Command) (stage, error) {
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.Umask == 0 {
		c.Umask = 0o022
	}
	unix.Umask(c.Umask)
	if err := unix.Chdir(c.Dir); err != nil {
		return stageDirectory, err
	}
	attr := &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if l.tty {
		if err := openTerminal(c.TTY); err != nil {
			return stageTerminal, err
		}
		attr.Sys.Setctty = true
	}
	path, err := lookUp(c.Argv[0], c.Env)
	if err != nil {
		return stageLookup, err
	}
	l.loans.program = path
	if path[0] != '/' {
		l.loans.program = c.Dir + "/" + path
	}
	l.pid, err = syscall.ForkExec(path, c.Argv, attr)
	if errors.Is(err, unix.ENOEXEC) { // a script without #!, as execvp(3) runs it
		l.pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", path}, c.Argv[1:]...), attr)
	}
	return stageExec, err
}

// openTerminal makes /dev/pts/N the three standard streams.
func openTerminal(number int) error {
	fd, err := unix.Open("/dev/pts/"+strconv.Itoa(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return takeOver(fd)
}

// letGo closes what only the command should hold: its streams, so that their
// readers see the end of it, and its directory.
func (l *leader) letGo() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = takeOver(null)
	}
	if err = errors.Join(err, unix.Chdir("/")); err != nil {
		die("let go of the command's streams", err)
	}
}

// takeOver makes fd the three standard streams and closes it.
func takeOver(fd int) error {
	defer unix.Close(fd)
	for stream := range 3 {
		if err := unix.Dup3(fd, stream, 0); err != nil {
			return err
		}
	}
	return nil
}

// listen does what the supervisor asks until it is gone.
func (l *leader) listen() {
	for {
		message, fds, err := receiveRaw(socketFD, l.buffer)
		if errors.Is(err, io.EOF) {
			if l.resting.Load() {
				os.Exit(0)
			}
			return
		}
		if err != nil {
			die("listen", err)
		}
		if kindOf(message) == msgWake {
			l.wake(message, fds)
			continue
		}
		l.serve(message, fds)
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}

// wake takes the streams of another command, and the command. The leader ends
// where it cannot, and another is started.
func (l *leader) wake(message []byte, fds []int) {
	if len(message) != 1+1 || !l.resting.CompareAndSwap(true, false) {
		die("wake", errProtocol)
	}
	for stream := range 3 {
		if message[1]&(1<<stream) == 0 {
			continue // it is /dev/null
		}
		if len(fds) == 0 {
			die("wake", errProtocol)
		}
		if err := unix.Dup3(fds[0], stream, 0); err != nil {
			die("wake", err)
		}
		unix.Close(fds[0])
		fds = fds[1:]
	}
	command, err := l.greet()
	if err != nil {
		os.Exit(1)
	}
	l.next <- command
}

func (l *leader) serve(message []byte, fds []int) {
	switch kindOf(message) {
	case msgSignal:
		if fields, err := decode(message, msgSignal, 1); err == nil && !l.ended.Load() {
			unix.Kill(-l.foreground(), unix.Signal(fields[0]))
		}
	case msgLend:
		pid, started, err := l.loans.lend(fds)
		l.answer(uint32(pid), started, err)
	case msgReclaim:
		l.loans.reclaim()
		l.answer(0, 0, nil)
	case msgInterrupt:
		if fields, err := decode(message, msgInterrupt, 2); err == nil {
			n, err := l.interrupt(unix.Signal(fields[0]), unix.Signal(fields[1]))
			l.answer(uint32(n), 0, err)
		}
	}
}

// answer tells the supervisor how what it asked for went.
func (l *leader) answer(first, second uint32, err error) {
	errno := unix.Errno(0)
	if err != nil {
		errno = errnoOf(err)
	}
	report(encode(msgAnswer, first, second, uint32(errno)))
}

// foreground is the process group a key like Ctrl-C would reach.
func (l *leader) foreground() int {
	if l.tty {
		var proc procReader
		if s, err := proc.stat(l.pid); err == nil && s.foreground > 0 {
			return s.foreground
		}
	}
	return l.pid
}

// reap waits for all descendants and reports the command's end.
func (l *leader) reap() {
	for {
		var status unix.WaitStatus
		var usage unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD
			return
		case pid == l.pid:
			l.ended.Store(true)
			report(encodeExited(status, &usage))
		default:
			l.loans.ended(pid)
		}
	}
}

func errnoOf(err error) unix.Errno {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
