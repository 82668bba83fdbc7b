package supervise

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// drainPause is how long the pipes of a command that has ended may stay silent
// before what its background processes could still write is given up.
const drainPause = 50 * time.Millisecond

// Output copies one stream of a command.
type Output struct {
	from *os.File
	done chan struct{}
}

// CopyOutput copies what comes from a pipe or a terminal until its end. When to
// takes no more, from is closed, which tells the command by SIGPIPE.
func CopyOutput(to io.Writer, from *os.File) *Output {
	o := &Output{from: from, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		if _, err := io.Copy(to, from); err != nil {
			from.Close()
		}
	}()
	return o
}

// Finish waits until all is copied that was written before the command ended.
// A background process may hold the pipe open for ever, so after the end an
// empty pipe counts as the end of the stream.
func (o *Output) Finish() {
	for {
		select {
		case <-o.done:
			return
		case <-time.After(drainPause):
		}
		if o.waiting() == 0 {
			o.from.SetReadDeadline(time.Now())
			<-o.done
			return
		}
	}
}

// waiting returns how many bytes can be read without blocking.
func (o *Output) waiting() (n int) {
	raw, err := o.from.SyscallConn()
	if err != nil {
		return 0
	}
	var ioctlErr error
	err = raw.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if err != nil || ioctlErr != nil {
		return 0
	}
	return n
}
