package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder is a testing.TB that remembers how a test would have ended.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.outcome = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.outcome = "fail: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestCheck(t *testing.T) {
	missing := errors.New("no such device")
	tests := []struct {
		name    string
		require string
		err     error
		want    string
	}{
		{"what is there lets the test run", "fuse", nil, ""},
		{"what is missing skips the test with the reason", "", missing, "skip: needs fuse: no such device"},
		{"what is missing and required fails the test", "bwrap, fuse", missing, "fail: needs fuse, which AGENTFENSE_REQUIRE asks for: no such device"},
		{"another requirement leaves it a skip", "bwrap,fusefs", missing, "skip: needs fuse: no such device"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(requireEnv, tt.require)
			r := &recorder{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				check(r, "fuse", tt.err)
			}()
			<-done
			if r.outcome != tt.want {
				t.Errorf("got %q, want %q", r.outcome, tt.want)
			}
		})
	}
}

func TestProbesLeaveNothing(t *testing.T) {
	for name, probe := range map[string]func() error{"fuse": mountFUSE, "bwrap": runBwrap, "userns": runUserNS} {
		t.Logf("%s: %v", name, probe())
	}
	t.Logf("cgroup: %v", probeCgroup([]string{"memory", "cpu", "pids"}))
	hierarchies, err := cgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range hierarchies {
		if left, _ := filepath.Glob(filepath.Join(m.dir, "agentfense-needs-*")); left != nil {
			t.Errorf("a probe left %v", left)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), "agentfense-needs") {
		t.Error("a probe's mount reached the machine's mount namespace")
	}
}

func TestOpenFUSERestoresTheMode(t *testing.T) {
	before := mode(t)
	t.Run("while open", func(t *testing.T) {
		OpenFUSE(t)
		info, err := os.Stat("/dev/fuse")
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o666 {
			t.Errorf("mode while open = %o, want 666", got)
		}
	})
	if got := mode(t); got != before {
		t.Errorf("mode afterwards = %o, want %o", got, before)
	}
}

func TestCgroupProbeNamesWhatIsMissing(t *testing.T) {
	err := probeCgroup([]string{"no-such-controller"})
	if err == nil || !strings.Contains(err.Error(), "cgroup hierarchy") {
		t.Errorf("got %v, want the missing hierarchy named", err)
	}
}

// mode reads the device's mode while no test plays an ordinary user.
func mode(t *testing.T) os.FileMode {
	t.Helper()
	device, err := os.Open("/dev/fuse")
	if err != nil {
		t.Skip(err)
	}
	defer device.Close()
	if err := unix.Flock(int(device.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	info, err := device.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
