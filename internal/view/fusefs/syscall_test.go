package fusefs

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseCall(t *testing.T) {
	tests := []struct {
		name, text string
		want       call
	}{
		{
			"a waiting thread", "257 0xffffff9c 0x7ffe 0x241 0x1b6 0x0 0x0 0x7ffc 0x7f00\n",
			call{true, 257, [6]uint64{0xffffff9c, 0x7ffe, 0x241, 0x1b6, 0, 0}},
		},
		{"a running thread", "running\n", call{}},
		{"a thread in no system call", "-1 0x7ffc 0x7f00\n", call{}},
		{"nothing", "", call{}},
		{"too few arguments", "0 0x1 0x2\n", call{}},
		{"a number that is none", "0 1 2 3 4 5 6 7 8\n", call{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := *parseCall([]byte(tt.text)); got != tt.want {
				t.Errorf("parseCall(%q) = %+v, want %+v", tt.text, got, tt.want)
			}
		})
	}
}

func TestWhatCallsNeed(t *testing.T) {
	openat := func(flags uint64) call { return call{true, unix.SYS_OPENAT, [6]uint64{0, 0, flags}} }
	tests := []struct {
		name      string
		call      call
		file, dir uint32
	}{
		{"open to read", openat(unix.O_RDONLY), 4, 0},
		{"open to write", openat(unix.O_WRONLY), 2, 0},
		{"open for both", openat(unix.O_RDWR | unix.O_CLOEXEC), 6, 0},
		{"open to read and truncate", openat(unix.O_RDONLY | unix.O_TRUNC), 6, 0},
		{"open that may make a file", openat(unix.O_WRONLY | unix.O_CREAT), 2, 2},
		{"open of a file without a name", openat(unix.O_WRONLY | unix.O_TMPFILE), 2, 2},
		{"open of the path only", openat(unix.O_PATH), 0, 0},
		{"exec", call{true, unix.SYS_EXECVE, [6]uint64{}}, 1, 0},
		{"access", call{true, unix.SYS_FACCESSAT, [6]uint64{0, 0, 5}}, 5, 5},
		{"mkdir", call{true, unix.SYS_MKDIRAT, [6]uint64{}}, 0, 2},
		{"stat", call{true, unix.SYS_STATX, [6]uint64{}}, 0, 0},
		{"read", call{true, unix.SYS_READ, [6]uint64{}}, 0, 0},
		{"what could not be seen", call{}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if file, dir := tt.call.needs(false), tt.call.needs(true); file != tt.file || dir != tt.dir {
				t.Errorf("needs %d of a file and %d of a directory, want %d and %d", file, dir, tt.file, tt.dir)
			}
		})
	}
}

func FuzzParseCall(f *testing.F) {
	f.Add([]byte("257 0xffffff9c 0x7ffe 0x241 0x1b6 0x0 0x0 0x7ffc 0x7f00\n"))
	f.Add([]byte("-1 0x0 0x0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := parseCall(b)
		if !c.known && *c != (call{args: c.args}) {
			t.Errorf("parseCall(%q) = %+v", b, *c)
		}
		c.needs(true)
		c.needs(false)
		if c.name() == "" {
			t.Errorf("parseCall(%q) has no name", b)
		}
	})
}
