package api

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// DrainPause is how long the pipes of a command that has ended may stay silent
// before what its background processes could still write is given up.
const DrainPause = 50 * time.Millisecond

// pieceBytes is the most that is copied at once.
const pieceBytes = 32 << 10

// Output copies one stream of a command.
type Output struct {
	From  *os.File
	taken atomic.Int64  // bytes of from
	ended chan struct{} // closed when the command has ended
	Done  chan struct{}
}

// CopyOutput copies what comes from a pipe or a terminal until its end. When to
// takes no more, from is closed, which tells the command by SIGPIPE.
func CopyOutput(to io.Writer, from *os.File) *Output {
	o := &Output{From: from, ended: make(chan struct{}), Done: make(chan struct{})}
	go func() {
		defer close(o.Done)
		if _, err := io.Copy(to, pieces{o}); err != nil {
			from.Close()
		}
	}()
	return o
}

// pieces reads what an Output copies.
type pieces struct{ *Output }

// Read waits for as long as no process has a terminal open: its command may go
// on, or open it again, and would be hung up if our end were closed.
func (r pieces) Read(b []byte) (int, error) {
	for ended := false; ; {
		n, err := r.From.Read(b[:min(len(b), pieceBytes)])
		if !errors.Is(err, unix.EIO) || ended {
			r.taken.Add(int64(n))
			return n, err
		}
		select {
		case <-r.ended:
			ended = true // once more, for what was written meanwhile
		case <-time.After(DrainPause):
		}
	}
}

// Finish waits until all is copied that was written before the command ended.
// A background process may hold the pipe open for ever, so after the end an
// empty pipe counts as the end of the stream; and it may keep the pipe full for
// ever, so what it writes after the end is not waited for.
func (o *Output) Finish() {
	if !o.Settle() {
		o.From.SetReadDeadline(time.Now())
		<-o.Done
	}
}

// Settle waits as Finish does, and goes on copying what comes later. It says
// whether the stream is at its end.
func (o *Output) Settle() (over bool) {
	close(o.ended)
	// In this order what is copied meanwhile counts twice, and not never. One
	// piece may have left the pipe without being counted yet.
	enough := int64(o.waiting()) + pieceBytes
	enough += o.taken.Load()
	for {
		select {
		case <-o.Done:
			return true
		case <-time.After(DrainPause):
		}
		if o.waiting() == 0 || o.taken.Load() >= enough {
			return false
		}
	}
}

// waiting returns how many bytes can be read without blocking.
func (o *Output) waiting() (n int) {
	raw, err := o.From.SyscallConn()
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
