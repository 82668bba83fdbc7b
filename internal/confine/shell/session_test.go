package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// session is a running shell.
type session struct {
	*Conn
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{} // closed when the shell has ended
}

func open(t *testing.T, path string) *session {
	t.Helper()
	theirIn, ourIn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourOut, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	argv := Argv(path)
	s := &session{Conn: NewConn(ourIn, ourOut), t: t, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{})}
	s.cmd.Stdin, s.cmd.Stdout = theirIn, theirOut
	s.cmd.Dir = t.TempDir()
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.cmd.Dir}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	go func() {
		_ = s.cmd.Wait() // how it ended, ProcessState says
		close(s.ended)
	}()
	t.Cleanup(func() {
		s.Close()
		s.signal(unix.SIGKILL)
		<-s.ended
	})
	pid, err := s.Greet(s.context())
	if err != nil || pid != s.cmd.Process.Pid {
		t.Fatalf("the setup: %d, %v, want %d", pid, err, s.cmd.Process.Pid)
	}
	return s
}

// signal sends sig to the shell and the programs that it runs.
func (s *session) signal(sig unix.Signal) {
	_ = unix.Kill(-s.cmd.Process.Pid, sig) // it may have ended
}

// killPrograms kills the programs that the shell runs and reports whether there were any.
func (s *session) killPrograms() (killed bool) { return s.signalPrograms(unix.SIGKILL) }

// signalPrograms sends sig to the programs that the shell runs and reports whether there were any.
func (s *session) signalPrograms(sig unix.Signal) (found bool) {
	s.t.Helper()
	shell := fmt.Sprint(s.cmd.Process.Pid)
	for line := range strings.Lines(s.programs("pid=,state=")) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil && fields[0] != shell && fields[1] != "Z" {
			_ = unix.Kill(pid, sig) // it may have ended
			found = true
		}
	}
	return found
}

func (s *session) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

// started is a running command.
type started struct {
	session        *session
	token          Token
	inside         []*os.File // the ends that the shell opens
	stdout, stderr chan string
	complained     chan struct{} // closed when the command has written an error, or cannot any more
}

func (s *session) start(command string) *started {
	s.t.Helper()
	x := &started{session: s, stdout: make(chan string, 1), stderr: make(chan string, 1), complained: make(chan struct{})}
	text, in := s.pipe()
	out, stdout := s.pipe()
	errs, stderr := s.pipe()
	x.inside = []*os.File{text, stdout, stderr}
	go func() {
		_, _ = io.WriteString(in, command) // a shell that ends does not read it all
		in.Close()
	}()
	for from, to := range map[*os.File]chan string{out: x.stdout, errs: x.stderr} {
		go func() {
			first := make([]byte, 1)
			n, err := from.Read(first)
			if from == errs {
				close(x.complained)
			}
			data := first[:n]
			if err == nil {
				var rest []byte
				rest, err = io.ReadAll(from)
				data = append(data, rest...)
			} else if errors.Is(err, io.EOF) {
				err = nil
			}
			if err != nil {
				data = []byte(err.Error())
			}
			to <- string(data)
		}()
	}
	path := func(f *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()) }
	var err error
	if x.token, err = s.Run(Pipes{path(text), path(stdout), path(stderr)}); err != nil {
		s.t.Fatal(err)
	}
	return x
}

func (s *session) pipe() (r, w *os.File) {
	s.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// output returns the output of the command and of all processes that it started.
func (x *started) output() (stdout, stderr string) {
	for _, f := range x.inside {
		f.Close()
	}
	return <-x.stdout, <-x.stderr
}

// answer waits for the command's exit status.
func (x *started) answer() int {
	x.session.t.Helper()
	status, err := x.session.Answer(x.session.context(), x.token)
	if err != nil {
		x.session.t.Fatal(err)
	}
	return status
}

// run runs a command to its end.
func (s *session) run(command string) (stdout, stderr string, status int) {
	s.t.Helper()
	x := s.start(command)
	status = x.answer()
	stdout, stderr = x.output()
	return stdout, stderr, status
}
