package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// descriptors lists what this process holds beyond what the kernel was asked
// for to list it.
var descriptors = program("descriptors", func(in *inside, _ []string) {
	for fd := 3; fd < 1024; fd++ {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && !ownDescriptor(fd) {
			target, _ := os.Readlink("/proc/self/fd/" + itoa(fd))
			in.fail("descriptor %d leads to %s", fd, target)
		}
	}
	for fd := range 3 {
		target, err := os.Readlink("/proc/self/fd/" + itoa(fd))
		in.works("readlink", err)
		in.is("descriptor "+itoa(fd)+" is a pipe", strings.HasPrefix(target, "pipe:["), true)
	}
	here, err := os.Getwd()
	in.works("getwd", err)
	target, err := os.Readlink("/proc/self/cwd")
	in.works("readlink cwd", err)
	in.is("the directory we stand in", target, here)
	in.is("it is the workspace", exists(filepath.Join(here, "marker")), true)
})

// ownDescriptor reports whether Go's runtime made fd: its poller.
func ownDescriptor(fd int) bool {
	target, err := os.Readlink("/proc/self/fd/" + itoa(fd))
	return err != nil || strings.HasPrefix(target, "anon_inode:[eventpoll]") || strings.HasPrefix(target, "anon_inode:[eventfd]") ||
		target == "/sys/fs/cgroup"
}

// Descriptors that our caller left open, or that our own processes hold, do not
// reach the command (CVE-2024-21626).
func TestOnlyThreeDescriptorsReachTheCommand(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"marker": ""}, who...)
		passes(t, s, descriptors, nil)

		// The same for a caller who leaks, seen by a shell, which has none of
		// its own.
		secret, err := os.Open("/etc")
		if err != nil {
			t.Fatal(err)
		}
		defer secret.Close()
		for _, verb := range [][]string{{"run", "--name", s.Name}, {"exec", s.Name}} {
			cmd := s.Command(t.Context(), append(verb, "--", "ls", "/proc/self/fd")...)
			cmd.ExtraFiles = []*os.File{secret, nil, secret, secret}
			out, err := cmd.Output()
			// ls itself opens the directory it lists.
			if want := "0\n1\n2\n3\n"; err != nil || string(out) != want {
				t.Errorf("%s: descriptors %q, want %q (%v)", verb[0], out, want, err)
			}
		}
	})
}
