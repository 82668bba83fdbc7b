package guest

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func TestCommandSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) })
		want := Command{
			Argv:        rapid.SliceOfN(text, 1, 5).Draw(t, "argv"),
			Env:         rapid.SliceOfN(text, 0, 5).Draw(t, "env"),
			Dir:         text.Draw(t, "dir"),
			TTY:         rapid.IntRange(-1, 1<<20).Draw(t, "tty"),
			Umask:       rapid.IntRange(0, 0o777).Draw(t, "umask"),
			ReuseLeader: rapid.Bool().Draw(t, "rest"),
		}
		got, err := decodeCommand(encodeCommand(want))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Env) == 0 && len(want.Env) == 0 {
			got.Env, want.Env = nil, nil
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func TestExitSurvivesTheWire(t *testing.T) {
	usage := &unix.Rusage{Utime: unix.Timeval{Sec: 1, Usec: 500000}, Stime: unix.Timeval{Usec: 7}, Maxrss: 2048}
	tests := []struct {
		name   string
		status unix.WaitStatus
		want   Exit
	}{
		{"a status", 42 << 8, Exit{Code: 42}},
		{"a signal", 9, Exit{Signal: 9}},
		{"a signal with a core dump", 0x80 | 11, Exit{Signal: 11}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.UserTime, tt.want.SystemTime, tt.want.MaxRSSBytes = 1500*time.Millisecond, 7*time.Microsecond, 2<<20
			got, err := decodeExited(encodeExited(tt.status, usage))
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestExitIsBounded(t *testing.T) {
	huge := &unix.Rusage{Utime: unix.Timeval{Sec: math.MaxInt64 / 1_000_000_000}, Maxrss: -1}
	got, err := decodeExited(encodeExited(0, huge))
	if err != nil || got.UserTime < 0 || got.SystemTime < 0 || got.MaxRSSBytes < 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, status := range map[string]unix.WaitStatus{"stopped": 0x137f, "continued": 0xffff} {
		if _, err := decodeExited(encodeExited(status, huge)); err == nil {
			t.Errorf("a process that %s passed for one that ended", name)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	f.Add(encodeCommand(Command{Argv: []string{"sh", "-c", "true"}, Env: []string{"A=1"}, Dir: "/", TTY: -1}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCommand(b)
		if err == nil && string(encodeCommand(c)) != string(b) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, c, encodeCommand(c))
		}
	})
}

// FuzzFromInside feeds the supervisor's decoders what a hostile sandbox sends.
func FuzzFromInside(f *testing.F) {
	f.Add(encodeExited(0, &unix.Rusage{}))
	f.Add([]byte{byte(msgFailed), byte(stageLookup), 2, 0, 0, 0})
	f.Add(encode(msgRefuse, 0, uint32(unix.EAGAIN)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if exit, err := decodeExited(b); err == nil && (exit.Signal < 0 || exit.Code < 0 || exit.UserTime < 0 || exit.MaxRSSBytes < 0) {
			t.Errorf("exit %+v", exit)
		}
		if err := checkStarted(b, Command{Argv: []string{"x"}}); err == nil && string(b) != string(encode(msgStarted)) {
			t.Errorf("%x passed for a start", b)
		}
		c := &Conn{ready: make(chan struct{}), done: make(chan struct{}), execs: map[uint32]*Exec{}}
		if err := c.handle(b); err == nil && string(b) != string(encode(msgReady)) {
			t.Errorf("%x was accepted of PID 1", b)
		}
	})
}
