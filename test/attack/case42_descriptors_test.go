package attack_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// descriptors lists what this process was given. What it opened itself, as a
// package does at its start, would be closed by an exec; nothing of that kind
// comes through one.
var descriptors = program("descriptors", func(in *inside, _ []string) {
	for fd := 3; fd < 1024; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 && !ownDescriptor(fd) {
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

// Open descriptors of the caller or of agentfense's processes do not reach the command
// (CVE-2024-21626).
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

// The command does not get the caller's input and output themselves: it could reopen a host
// file or directory through /proc/self/fd with other rights, and a directory gives access
// to its whole file system.
func TestStreamsCannotBeOpenedAgain(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		host := t.TempDir()
		file := filepath.Join(host, "file")
		if err := os.WriteFile(file, []byte("the host's\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		const script = `for n in 0 1 2; do readlink /proc/$$/fd/$n | grep -v '^pipe:'; done >&2
cat /proc/$$/fd/1 /proc/$$/fd/[01]/file /proc/$$/fd/[01]/../file 2>/dev/null < /dev/null >&2; exit 7`
		for name, open := range map[string]func() (*os.File, error){
			"a directory":              func() (*os.File, error) { return os.Open(host) },
			"a file to read and write": func() (*os.File, error) { return os.OpenFile(file, os.O_RDWR, 0) },
			"the source's directory":   func() (*os.File, error) { return os.Open(s.Source) },
		} {
			for _, stream := range []string{"input", "output"} {
				f, err := open()
				if err != nil {
					t.Fatal(err)
				}
				cmd := s.Command(t.Context(), "run", "--name", s.Name, "--", "sh", "-c", script)
				if stream == "input" {
					cmd.Stdin = f
				} else {
					cmd.Stdout = f
				}
				var stderr strings.Builder
				cmd.Stderr = &stderr
				_ = cmd.Run() // the exit code tells
				f.Close()
				if got := cmd.ProcessState.ExitCode(); got != 7 || strings.Contains(stderr.String(), "host's") || strings.HasPrefix(stderr.String(), "/") {
					t.Errorf("%s as %s: exit code %d, %q", name, stream, got, stderr.String())
				}
			}
		}
	})
}
