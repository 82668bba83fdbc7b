package egress

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// The process is started from a thread that has these files left, and its program.
func TestTheProcessReadsTheResolversFilesAlone(t *testing.T) {
	testenv.Landlock(t, 2)
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	e := &Egress{options: Options{Program: program}}
	errs := make(chan error)
	thread.Go(func() {
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		errs <- errors.Join(err, e.restrict())
		for _, path := range []string{"/etc/hosts", "/proc/self/exe", "/proc/version", "/usr/bin/env", "/dev/null"} {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			errs <- err
		}
	})
	for i, want := range []error{nil, nil, nil, unix.EACCES, unix.EACCES, unix.EACCES} {
		if err := <-errs; !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("step %d: got %v, want %v", i, err, want)
		}
	}
}
