package attack_test

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	typing := func(request uintptr) probe {
		return func() error {
			text := [8]byte{'x'}
			return syscallError(unix.SYS_IOCTL, 0, request, uintptr(unsafe.Pointer(&text)))
		}
	}
	probes["TIOCSTI"] = typing(unix.TIOCSTI)
	probes["TIOCSTI with a dirty high word"] = typing(unix.TIOCSTI | 0xdead<<32)
	probes["TIOCLINUX"] = typing(0x541c)
	probes["TIOCSETD"] = typing(unix.TIOCSETD)
	probes["open the controlling terminal"] = func() error { _, err := unix.Open("/dev/tty", unix.O_RDWR, 0); return err }
	probes["open the console"] = func() error { _, err := unix.Open("/dev/console", unix.O_RDWR, 0); return err }
}

// With pipes there is no terminal at all, and the calls are refused anyway.
func TestNoTerminalToTypeInto(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		wantAnswers(t, s, map[string]string{
			"TIOCSTI":                        "EPERM",
			"TIOCSTI with a dirty high word": "EPERM",
			"TIOCLINUX":                      "EPERM",
			"TIOCSETD":                       "EPERM",
			"open the controlling terminal":  "ENXIO",
			"open the console":               "ENOENT EACCES ENXIO",
		})
	})
}

// With a terminal the command has a new one: the caller's terminal is another, and nothing
// was typed into it (CVE-2017-5226).
func TestTerminalOfTheCallerIsAnother(t *testing.T) {
	s := harness.New(t, binary, nil)
	ours, theirs, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "sh", "-c", "test -t 0 && exit 3")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	_ = cmd.Run() // the exit code tells
	if got := cmd.ProcessState.ExitCode(); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
	waiting, err := unix.IoctlGetInt(int(theirs.Fd()), unix.TIOCINQ)
	if err != nil || waiting != 0 {
		t.Errorf("%d bytes were typed into the caller's terminal (%v)", waiting, err)
	}
}
