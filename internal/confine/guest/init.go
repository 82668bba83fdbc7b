package guest

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// InitEnv is the environment for PID 1, as KEY=VALUE. It keeps the process small: each
// sandbox has one, which is mostly idle. The runtime reads the settings at its start; to
// change the first one later would take half a megabyte.
var InitEnv = []string{"GOMAXPROCS=1", "GOGC=50"}

// Main is PID 1 of a sandbox. It does not return. It exits when the supervisor closes the
// socket, which ends all processes inside. The argument after InitVerb is the number of the
// socket's descriptor, by default socketFD.
//
// It is one loop over poll(2) in one goroutine, so that it needs no new thread when the
// sandbox is at its limit of processes.
func Main() {
	harden()
	restoreSignals()
	socket, err := socketOf(os.Args)
	if err != nil {
		die("find the socket", err)
	}
	if err := closeInherited(socket); err != nil {
		die("close inherited descriptors", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, unix.SetNonblock(socket, false), unix.Chdir("/")); err != nil {
		die("prepare", err)
	}
	unix.Umask(0o022)
	if err := restrictToMounts(); err != nil {
		die("landlock", err)
	}
	if err := limitProcesses(); err != nil {
		die("limit the processes", err)
	}
	p := &pid1{socket: socket, null: null, leaders: map[int]*child{}, strays: map[int]*child{}, leaderEnv: leaderEnvOf(), buffer: make([]byte, maxIncoming)}
	quiet, err := p.confineSockets()
	if err != nil {
		die("confine the sockets", err)
	}
	if err := sendRaw(socket, encode(msgReady, uint32(quiet))); err != nil {
		die("report that it runs", err)
	}
	for {
		if err := p.step(); err != nil {
			if errors.Is(err, io.EOF) {
				os.Exit(0)
			}
			die("serve", err)
		}
	}
}

// socketOf returns the descriptor that the command line names.
func socketOf(args []string) (int, error) {
	if len(args) < 3 {
		return socketFD, nil
	}
	fd, err := strconv.Atoi(args[2])
	if err == nil && fd < socketFD {
		err = unix.EBADF
	}
	return fd, err
}

// harden protects this process from the commands: they cannot trace it or read its memory
// and descriptors. It makes no core dumps and ignores the signals that it can ignore.
func harden() {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		die("become undumpable", err)
	}
	ignoreSignals()
}

// fatalSignals are the signals that end a Go program without os/signal.Notify.
var fatalSignals = []unix.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGILL, unix.SIGTRAP, unix.SIGABRT, unix.SIGBUS,
	unix.SIGFPE, unix.SIGSEGV, unix.SIGTERM, unix.SIGSTKFLT, unix.SIGSYS,
}

// inheritedSignals are the signals that Go's runtime leaves to children as it found them: it does
// not handle the stops and the C library's own signals, which make(1) ignores for its children,
// and not the first two where they were ignored, as by nohup and by a shell that starts a program
// in the background.
var inheritedSignals = []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, 32, 33, 34}

// ignoreSignals makes the kernel ignore fatalSignals, without package os/signal, which
// would cost each exec two milliseconds and a thread. The runtime still believes that it
// handles them, so children get the default action. A fault of this process still kills it,
// because such a signal cannot be ignored.
func ignoreSignals() {
	const ignore = 1 // SIG_IGN
	setAction(ignore, fatalSignals)
}

// restoreSignals gives inheritedSignals the default action, so that whoever started the sandbox
// does not decide what commands ignore. The kernel drops them for PID 1 (pid_namespaces(7)).
func restoreSignals() {
	const standard = 0 // SIG_DFL
	setAction(standard, inheritedSignals)
}

func setAction(handler uintptr, signals []unix.Signal) {
	action := struct{ handler, flags, restorer, mask uintptr }{handler: handler}
	for _, sig := range signals {
		_, _, _ = unix.Syscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
}

func die(what string, err error) {
	os.Stderr.WriteString("agentfense: inside: " + what + ": " + err.Error() + "\n")
	os.Exit(1)
}

// child is a direct child of PID 1.
type child struct {
	exec  uint32 // of a leader
	pidfd int
}

// pid1 is PID 1's state. Its children are leaders, which it started, and strays:
// descendants of a killed leader. It kills each stray that it finds.
type pid1 struct {
	socket  int
	null    int
	leaders map[int]*child // by pid
	strays  map[int]*child
	dead    []uint32 // execs with an ended leader; their end is not reported yet
	unsure  bool     // there may be strays without a coming event
	idle    bool     // memory was returned to the kernel, and no event has come since
	dropped time.Time

	attempts attempts

	leaderEnv []string
	fds       []unix.PollFd
	buffer    []byte
	proc      procReader
}

// step waits for events and handles them.
func (p *pid1) step() error {
	// poll(2) ignores a negative descriptor.
	p.fds = append(p.fds[:0], unix.PollFd{Fd: int32(p.socket), Events: unix.POLLIN}, unix.PollFd{Fd: p.attempts.fd(), Events: unix.POLLIN})
	for _, children := range []map[int]*child{p.leaders, p.strays} {
		for _, c := range children {
			p.fds = append(p.fds, unix.PollFd{Fd: int32(c.pidfd), Events: unix.POLLIN})
		}
	}
	n, err := unix.Poll(p.fds, p.timeout())
	if err != nil && !errors.Is(err, unix.EINTR) {
		return err
	}
	if err := p.report(false); err != nil {
		return err
	}
	if n == 0 && !p.unsure && !p.idle && p.attempts.isReported() {
		DropText()
		p.idle, p.dropped = true, time.Now()
		return nil
	}
	p.idle = false
	p.reap()
	if len(p.dead) > 0 {
		if err := p.sweep(); err != nil {
			return err
		}
	}
	if p.fds[1].Revents != 0 {
		if err := p.refuse(p.fds[1].Revents); err != nil {
			return err
		}
	}
	if p.fds[0].Revents != 0 {
		return p.serve()
	}
	return nil
}

// When PID 1 returns memory to the kernel: after this long without an event, and at most
// once in this interval, because a process with an event every second would soon need the
// memory again.
const (
	idleAfter = 500 * time.Millisecond
	dropPause = 10 * time.Second
)

// timeout returns how long to wait for an event, in milliseconds.
func (p *pid1) timeout() int {
	switch {
	case p.unsure:
		return 0
	case !p.attempts.isReported():
		return int(max(attemptPause-time.Since(p.attempts.reported), 0).Milliseconds()) + 1
	case p.idle:
		return -1
	}
	return int(max(idleAfter, dropPause-time.Since(p.dropped)).Milliseconds())
}

// reap records the children that have ended. stray reports whether one of them was a stray.
func (p *pid1) reap() (stray bool) {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid == 0 {
			return stray
		}
		if c := p.leaders[pid]; c != nil {
			p.dead = append(p.dead, c.exec)
			unix.Close(c.pidfd)
			delete(p.leaders, pid)
			continue
		}
		stray = true
		if c := p.strays[pid]; c != nil {
			unix.Close(c.pidfd)
			delete(p.strays, pid)
		}
	}
}

// sweep kills the strays. When no stray is left, it reports the end of execs. The children
// of a stray become strays when it dies, which is an event, so all are found eventually.
// The scan can miss a stray that forks and exits repeatedly, but then another stray has
// died meanwhile, which sets unsure.
func (p *pid1) sweep() error {
	err := p.proc.children(os.Getpid(), func(pid int) error {
		if p.leaders[pid] != nil || p.strays[pid] != nil {
			return nil
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return err
		}
		p.strays[pid] = &child{pidfd: fd}
		return unix.Kill(pid, unix.SIGKILL)
	})
	if err != nil {
		return err
	}
	p.unsure = p.reap()
	if p.unsure || len(p.strays) > 0 {
		return nil
	}
	for _, exec := range p.dead {
		if err := sendRaw(p.socket, encode(msgEnded, exec)); err != nil {
			return err
		}
	}
	p.dead = p.dead[:0]
	return nil
}

// serve handles one request. If the leader cannot be started, it sends msgRefuse. It always
// closes the sockets and pipes of the request.
func (p *pid1) serve() error {
	message, fds, err := receiveRaw(p.socket, p.buffer)
	if err != nil {
		return err
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if kindOf(message) == msgSettle {
		if err := p.report(true); err != nil {
			return err
		}
		return sendRaw(p.socket, encode(msgSettled))
	}
	if len(message) != 1+4+1 || len(fds) == 0 {
		return errProtocol
	}
	fields, err := decode(message[:5], msgSpawn, 1)
	if err != nil {
		return err
	}
	files := []uintptr{uintptr(p.null), uintptr(p.null), uintptr(p.null), uintptr(fds[0])}
	streams := fds[1:]
	for i := range 3 {
		if message[5]&(1<<i) != 0 {
			if len(streams) == 0 {
				return errProtocol
			}
			files[i], streams = uintptr(streams[0]), streams[1:]
		}
	}
	if err := p.spawn(fields[0], files); err != nil {
		return sendRaw(p.socket, encode(msgRefuse, fields[0], uint32(errnoOf(err))))
	}
	return nil
}

// spawn starts a leader from this process's binary, which has no name inside.
func (p *pid1) spawn(exec uint32, files []uintptr) error {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"agentfense", ExecVerb}, &syscall.ProcAttr{
		Env: p.leaderEnv, Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		unix.Kill(pid, unix.SIGKILL)
		unix.Wait4(pid, nil, 0, nil)
		return err
	}
	p.leaders[pid] = &child{exec: exec, pidfd: fd}
	return nil
}
