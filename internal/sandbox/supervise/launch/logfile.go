package supervise

import (
	"io"
	"os"
)

// maxLogBytes bounds what a supervisor writes into its log: clients that leave early
// cause lines as often as they like. A log of that size begins anew at the next
// start.
const maxLogBytes = 512 << 10

// openLogFile opens the log at path to append to it.
func openLogFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > maxLogBytes {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// boundedLog takes lines, one at a time, and passes on as many as fit.
type boundedLog struct {
	to   io.Writer
	left int // bytes
}

const logIsFull = `{"level":"WARN","msg":"the log is full: nothing more is written into it until the next start"}` + "\n"

// Write never fails for want of room: nobody could be told.
func (l *boundedLog) Write(line []byte) (int, error) {
	if l.left <= 0 {
		return len(line), nil
	}
	if l.left -= len(line); l.left > 0 {
		return l.to.Write(line)
	}
	_, err := io.WriteString(l.to, logIsFull)
	return len(line), err
}
