// Package shim is the program that takes bubblewrap's place inside a sandbox. It reads bubblewrap's
// command line, asks the supervisor for an inner sandbox, copies its own streams to and from the
// command's, and ends as the command ends.
//
// It has no rights that other programs inside lack. A program there could speak to the supervisor
// itself: package inner lets it ask for less, and for nothing else.
package shim

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/inner"
	"github.com/agentfense/agentfense/internal/confine/isolate"
)

// name is that of bubblewrap's program.
const name = "bwrap"

// failed is the exit status when there is no inner sandbox, as bubblewrap's.
const failed = 1

// IsCalled reports whether this process was started in bubblewrap's place: by that name, and where
// a sandbox shows it.
func IsCalled() bool {
	own, err := os.Readlink("/proc/self/exe")
	if err != nil || filepath.Base(own) != name {
		return false
	}
	_, err = os.Lstat(isolate.ShimSocket)
	return err == nil
}

// Main runs with bubblewrap's arguments and returns the exit status.
func Main(args []string) int {
	request, err := parse(args)
	switch {
	case errors.Is(err, inner.ErrHelp):
		fmt.Print(inner.Help())
		return 0
	case errors.Is(err, inner.ErrVersion):
		fmt.Print(inner.Version)
		return 0
	case err != nil:
		return fail(err.Error(), failed)
	}
	if request.DieWithParent {
		runtime.LockOSThread() // the setting is of a thread
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fail("--die-with-parent: "+err.Error(), failed)
		}
	}
	c, err := ask(request)
	if err != nil {
		return fail(err.Error(), failed)
	}
	defer c.Close()
	return attend(c)
}

func fail(text string, status int) int {
	fmt.Fprintf(os.Stderr, "bwrap: agentfense: %s\n", text)
	return status
}

// parse reads the arguments. The descriptors that they name are of this process, and their contents
// travel with the request.
func parse(args []string) (*inner.Request, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	return inner.Parse(args, inner.Outer{
		UID: os.Getuid(), GID: os.Getgid(), Dir: dir, Env: os.Environ(),
		Read: read,
		Link: func(path string) string {
			target, _ := os.Readlink(path) // "" is no link
			return target
		},
	})
}

// read returns what is in a descriptor, which must not be one of the streams' or the runtime's own.
func read(fd int) (string, error) {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "data")
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, inner.MaxBytes+1))
	if err == nil && len(content) > inner.MaxBytes {
		err = errors.New("it holds too much")
	}
	return string(content), err
}

// ask sends the request.
func ask(r *inner.Request) (*net.UnixConn, error) {
	if info, err := os.Lstat(isolate.ShimSocket); err == nil && info.Mode().IsRegular() {
		return nil, errors.New("an inner sandbox cannot contain another")
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: isolate.ShimSocket})
	if err != nil {
		return nil, fmt.Errorf("no inner sandboxes are possible in this sandbox: %w", err)
	}
	if err := inner.Requests.Send(c, r); err != nil && !errors.Is(err, unix.EPIPE) { // else the answer says why
		c.Close()
		return nil, err
	}
	return c, nil
}

// attend serves the command until its end, and returns the exit status.
func attend(c *net.UnixConn) int {
	var reply, end inner.Reply
	files, err := inner.Replies.Receive(c, &reply)
	if err != nil {
		return fail("the sandbox does not answer: "+err.Error(), failed)
	}
	if !reply.Started || len(files) != 3 {
		return fail(reply.Error, max(reply.Status, failed))
	}
	forward(c)
	var output sync.WaitGroup
	go func() {
		_, _ = io.Copy(files[0], os.Stdin) // the command may read no more of it
		files[0].Close()
	}()
	for i, to := range []*os.File{os.Stdout, os.Stderr} {
		output.Go(func() {
			_, _ = io.Copy(to, files[1+i])
			files[1+i].Close() // a reader that has gone ends the command's writes
		})
	}
	if _, err := inner.Replies.Receive(c, &end); err != nil || !end.Ended {
		return fail("the sandbox ended", 128+int(unix.SIGKILL))
	}
	output.Wait()
	if end.Signal != 0 {
		return 128 + end.Signal
	}
	return end.Code
}

// forward passes signals on to the command.
func forward(c *net.UnixConn) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGCONT, unix.SIGWINCH)
	go func() {
		for s := range signals {
			if number, is := s.(syscall.Signal); is {
				_, _ = c.Write([]byte{byte(number)}) // the command may have ended
			}
		}
	}()
}
