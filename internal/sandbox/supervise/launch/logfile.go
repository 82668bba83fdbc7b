package launch

import (
	"io"
	"os"
)

// MaxLogBytes bounds what a supervisor writes into its log: clients that leave early
// cause lines as often as they like. A log of that size begins anew at the next
// start.
const MaxLogBytes = 512 << 10

// OpenLogFile opens the log at path to append to it.
func OpenLogFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > MaxLogBytes {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// BoundedLog takes lines, one at a time, and passes on as many as fit.
type BoundedLog struct {
	To   io.Writer
	Left int // bytes, that it is full included
}

const logIsFull = `{"level":"WARN","msg":"the log is full: nothing more is written into it until the next start"}` + "\n"

// Write never fails for want of room: nobody could be told.
func (l *BoundedLog) Write(line []byte) (int, error) {
	switch {
	case l.Left == 0:
		return len(line), nil
	case len(line) <= l.Left-len(logIsFull):
		l.Left -= len(line)
		return l.To.Write(line)
	}
	l.Left = 0
	_, err := io.WriteString(l.To, logIsFull)
	return len(line), err
}
