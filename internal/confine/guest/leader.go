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

// ExecMain is the leader of one exec. It does not return. It exits when it has no
// descendants left.
//
// Until then it is the subreaper of its descendants, so background processes of a command
// run until the sandbox ends or the exec is killed. When a leader is killed, its
// descendants become children of PID 1, which kills them.
//
// A leader without descendants may wait for another command. No process inside can read its
// memory or trace it. The supervisor kills and replaces a waiting leader that does not take
// the command at once. The leader of a session's shell receives more pipes later, as
// leases, and ends the processes that a command of the session has started.
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
		if !command.ReuseLeader {
			break
		}
		l.idle.Store(true)
		report(encode(msgIdle))
		command = <-l.next
		l.lead(command)
	}
	l.reap()
	os.Exit(0)
}

// takeThreads makes the runtime create the threads that a leader will need. Later the
// command may use up the limit of processes, and the runtime ends a program that cannot
// create a thread. Each goroutine that waits in a system call needs a thread, and so does
// the timer.
func takeThreads() {
	const enough = 3 // in addition to this one: for the reaper, the listener and the timer
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

// maxCommands is how many more commands a leader runs. Its memory is never
// garbage-collected.
const maxCommands = 50

// greet reports that the leader runs and returns its command.
func (l *leader) greet() (Command, error) {
	if err := sendRaw(socketFD, encode(msgHello)); err != nil {
		return Command{}, err
	}
	return l.receiveCommand()
}

// lead starts a command. If that fails the leader ends.
func (l *leader) lead(command Command) {
	l.tty = command.TTY >= 0
	at, err := l.start(command)
	if err != nil {
		report(binary.LittleEndian.AppendUint32([]byte{byte(msgFailed), byte(at)}, uint32(errnoOf(err))))
		os.Exit(1)
	}
	l.closeCommandFiles()
	l.ended.Store(false)
	report(encode(msgStarted))
}

// report sends a message to the supervisor. It ignores errors: without a supervisor PID 1
// ends.
func report(message []byte) { _ = sendRaw(socketFD, message) }

// receiveCommand receives the pieces of a command. After a long command the leader is not
// reused, because it keeps the memory.
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
			c.ReuseLeader = c.ReuseLeader && len(payload) < pieceBytes
			return c, err
		}
	}
}

// leader is a leader's state. One goroutine starts commands and reaps, another
// listens.
type leader struct {
	pid    int // of the command, which leads a session and a process group
	tty    bool
	ended  atomic.Bool // the command has ended; then only the reaper uses pid and tty
	idle   atomic.Bool
	next   chan Command // for an idle leader
	leases leases
	buffer []byte // used by the listener only, once it runs
}

// start starts the command as the leader of a new session, on its terminal if it has one.
// With an error it returns the stage that failed.
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
	l.leases.program = path
	if path[0] != '/' {
		l.leases.program = c.Dir + "/" + path
	}
	l.pid, err = syscall.ForkExec(path, c.Argv, attr)
	if errors.Is(err, unix.ENOEXEC) { // a script without #!, which execvp(3) runs with the shell
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

// closeCommandFiles closes what only the command should have open: its streams, so that
// their readers see the end of file, and its directory.
func (l *leader) closeCommandFiles() {
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = takeOver(null)
	}
	if err = errors.Join(err, unix.Chdir("/")); err != nil {
		die("close the command's streams", err)
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

// listen handles the supervisor's requests until the supervisor has ended.
func (l *leader) listen() {
	for {
		message, fds, err := receiveRaw(socketFD, l.buffer)
		if errors.Is(err, io.EOF) {
			if l.idle.Load() {
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

// wake receives the streams of another command, and the command. If that fails the leader
// ends, and the supervisor starts another.
func (l *leader) wake(message []byte, fds []int) {
	if len(message) != 1+1 || !l.idle.CompareAndSwap(true, false) {
		die("wake", errProtocol)
	}
	for stream := range 3 {
		if message[1]&(1<<stream) == 0 {
			continue // it stays /dev/null
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
	case msgGrant:
		pid, started, err := l.leases.grant(fds)
		l.answer(uint32(pid), started, err)
	case msgRevoke:
		l.leases.revoke()
		l.answer(0, 0, nil)
	case msgInterrupt:
		if fields, err := decode(message, msgInterrupt, 2); err == nil {
			n, err := l.interrupt(unix.Signal(fields[0]), unix.Signal(fields[1]))
			l.answer(uint32(n), 0, err)
		}
	}
}

// answer sends the supervisor the result of its request.
func (l *leader) answer(first, second uint32, err error) {
	errno := unix.Errno(0)
	if err != nil {
		errno = errnoOf(err)
	}
	report(encode(msgAnswer, first, second, uint32(errno)))
}

// foreground returns the process group to which a key like Ctrl-C would send a signal.
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
			l.leases.ended(pid)
		}
	}
}

func errnoOf(err error) unix.Errno {
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}
