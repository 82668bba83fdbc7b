package fusefs_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// lockedBuffer collects the log of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAPanicFailsOneRequest: the caller gets EIO, the log has the place, no lock stays
// held, and other requests are served.
func TestAPanicFailsOneRequest(t *testing.T) {
	source := t.TempDir()
	tree{"f": "1", "d/g": "2", "l": "-> f"}.make(t, source)
	var log lockedBuffer
	v := mountSource(t, source, func(o *fusefs.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) }, "**=write")
	attempts := []struct {
		handler string
		try     func() error
	}{
		{"Lookup", func() error { return unix.Lstat(v.path("f"), new(unix.Stat_t)) }},
		{"readDir", func() error { _, err := os.ReadDir(v.path("")); return err }},
		{"Mkdir", func() error { return unix.Mkdir(v.path("new"), 0o755) }},
		{"Create", func() error { return os.WriteFile(v.path("made"), []byte("x"), 0o644) }},
		{"Symlink", func() error { return unix.Symlink("f", v.path("link")) }},
	}
	v.WithoutRules(func() {
		for _, a := range attempts {
			if err := a.try(); errno(err) != unix.EIO {
				t.Errorf("%s: %v, want EIO", a.handler, err)
			}
		}
	})
	told := log.String()
	if got := strings.Count(told, "a file system handler panicked"); got < len(attempts) {
		t.Errorf("%d panics are in the log, want %d or more:\n%s", got, len(attempts), told)
	}
	if !strings.Contains(told, "fusefs.(*FS).Lookup") {
		t.Errorf("the log does not tell where:\n%s", told)
	}
	v.write("made", "after")
	if got := v.read("f") + v.read("d/g") + v.read("made") + " " + v.names(""); got != "12after d f l made" {
		t.Errorf("afterwards it shows %q", got)
	}
}

// errno is the system's own error within err.
func errno(err error) (no unix.Errno) {
	errors.As(err, &no)
	return no
}
