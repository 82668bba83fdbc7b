package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// echoVerb is the hidden verb `bench __echo`: it sends each byte back that comes from descriptor 3.
const echoVerb = "__echo"

func echoMain([]string) error {
	var b [1]byte
	for {
		if n, err := unix.Read(3, b[:]); n <= 0 {
			return err
		}
		if _, err := unix.Write(3, b[:]); err != nil {
			return err
		}
	}
}

// echo is a process that sends bytes back.
type echo struct {
	cmd *exec.Cmd
	fd  int
}

func startEcho(ctx context.Context, self string) (*echo, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	given := os.NewFile(uintptr(ends[1]), "echo")
	defer given.Close()
	e := &echo{cmd: exec.CommandContext(ctx, self, echoVerb), fd: ends[0]}
	e.cmd.ExtraFiles = []*os.File{given}
	if err := e.cmd.Start(); err != nil {
		unix.Close(e.fd)
		return nil, err
	}
	return e, nil
}

// end closes the connection, which ends the process.
func (e *echo) end() error { return errors.Join(unix.Close(e.fd), e.cmd.Wait()) }

// measureEcho is how long it takes until as many processes have answered as a lock must tell, if
// they do nothing else. Between two times the agentfense binary starts, as it does for a lock.
func measureEcho(ctx context.Context, p place) (took float64, err error) {
	a, ok := p.(*agentfense)
	if !ok {
		return 0, errNotComparable
	}
	var all []*echo
	defer func() {
		for _, e := range all {
			err = errors.Join(err, e.end())
		}
	}()
	for range boardOthers {
		e, err := startEcho(ctx, a.disk.Self())
		if err != nil {
			return 0, err
		}
		all = append(all, e)
	}
	return medianOf(func() (time.Duration, error) {
		if err := a.do(ctx, "version"); err != nil {
			return 0, err
		}
		start := time.Now()
		b := []byte{1}
		for _, e := range all {
			if _, err := unix.Write(e.fd, b); err != nil {
				return 0, err
			}
		}
		for _, e := range all {
			if n, err := unix.Read(e.fd, b); n != 1 {
				return 0, fmt.Errorf("echo: %d bytes: %w", n, err)
			}
		}
		return time.Since(start), nil
	})
}
