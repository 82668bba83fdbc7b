package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// noQuota is a quota without limits.
type noQuota struct{}

func (noQuota) Reserve(int64) error { return nil }
func (noQuota) Release(int64)       {}
func (noQuota) AddContent(int64)    {}
func (noQuota) ClearContents()      {}

// open makes a journal in a temporary directory.
func open(t *testing.T) *Journal {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "work")
	must(t, os.Mkdir(work, 0o700))
	used := 0
	j, _, err := Open(Options{
		Home: openPath(t, home), Work: openPath(t, work), Quota: noQuota{},
		Temp: func() string { used++; return strconv.Itoa(used) },
	})
	must(t, err)
	t.Cleanup(func() { must(t, j.Close()) })
	return j
}

func openPath(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestTheLogIsSyncedItselfWhereItsBlocksAreNot: a flush of the disk is enough
// only for records in place of zeros that an earlier sync has made durable.
func TestTheLogIsSyncedItselfWhereItsBlocksAreNot(t *testing.T) {
	j := open(t)
	j.o.InPlace = true
	record := func() Span {
		base := someBase
		must(t, j.Keep(&base, bytes.Repeat([]byte{'x'}, 1000)))
		at, err := j.AppendSpan(BaseRecord("/a", base))
		must(t, err)
		return at
	}
	if j.WriteOut(record()) {
		t.Fatal("a flush is said to be enough for a log that was never synced")
	}
	must(t, j.Sync(record()))
	at := record()
	if !j.WriteOut(at) {
		t.Fatal("a flush is said not to be enough in place of durable zeros")
	}
	j.ConfirmFlush(at)
	for j.size <= j.settled {
		at = record()
	}
	if j.WriteOut(at) {
		t.Error("a flush is said to be enough beyond the durable zeros")
	}
	must(t, j.Sync(at))
	j.o.InPlace = false
	if j.WriteOut(record()) {
		t.Error("a flush is said to be enough where blocks move")
	}
	j.o.InPlace = true
	must(t, j.Clear())
	if j.WriteOut(record()) {
		t.Error("a flush is said to be enough for a log that was cut")
	}
}

func FuzzReadLog(f *testing.F) {
	record := appendRecord([]byte(logHeader), BaseRecord("/a", someBase))
	f.Add(record)
	f.Add(append(record, 0, 0, 'x'))
	f.Add([]byte("\x00\nx"))
	f.Fuzz(func(t *testing.T, log []byte) {
		read := newTable()
		if read.readFrom(bytes.NewReader(log), int64(len(log))) != nil {
			return
		}
		read.findContents()
		if rest := log[read.end:]; read.end > 0 && (len(bytes.Trim(rest, "\x00")) > 0 || log[read.end-1] == 0) {
			t.Fatalf("it ends at %d, with %q behind", read.end, rest)
		}
		if read.end > 0 && read.endsLine != (log[read.end-1] == '\n') {
			t.Fatalf("it ends a line: %v", read.endsLine)
		}
	})
}
