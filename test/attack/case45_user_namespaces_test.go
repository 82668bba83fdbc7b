package attack_test

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/needs"
	"github.com/agentfense/agentfense/test/harness"
)

func init() {
	cloneWith := func(flags uintptr) probe {
		return func() error { return syscallError(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD)) }
	}
	unshare := func(flags int) probe { return func() error { return unix.Unshare(flags) } }
	probes["unshare a user namespace"] = unshare(unix.CLONE_NEWUSER)
	probes["unshare a user and a mount namespace"] = unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS)
	probes["unshare a network namespace"] = unshare(unix.CLONE_NEWNET)
	probes["unshare a time namespace"] = unshare(unix.CLONE_NEWTIME)
	probes["clone a user namespace"] = cloneWith(unix.CLONE_NEWUSER)
	probes["clone a user and a network namespace"] = cloneWith(unix.CLONE_NEWUSER | unix.CLONE_NEWNET)
	probes["clone with a dirty high word"] = cloneWith(unix.CLONE_NEWUSER | 0xdead<<32)
	probes["clone3"] = func() error { return syscallError(unix.SYS_CLONE3, 0, 88) }
	probes["join PID 1's user namespace"] = func() error {
		fd, err := unix.Open("/proc/self/ns/user", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, unix.CLONE_NEWUSER)
	}
}

// No user namespace can be made inside, by any call, and none of the kernel
// code behind one is reached.
func TestNoUserNamespaceInside(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		wantAnswers(t, s, map[string]string{
			"unshare a user namespace":             "EPERM",
			"unshare a user and a mount namespace": "EPERM",
			"unshare a network namespace":          "EPERM",
			"unshare a time namespace":             "EPERM",
			"clone a user namespace":               "EPERM",
			"clone a user and a network namespace": "EPERM",
			"clone with a dirty high word":         "EPERM",
			"clone3":                               "ENOSYS",
			"join PID 1's user namespace":          "EPERM",
		})
		prints(t, s, `echo 100 2>&- > /proc/sys/user/max_user_namespaces && echo raised
unshare -U true 2>&- && echo unshared
unshare -r true 2>&- && echo unshared
grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | sort -u -k2 | cut -f2`, "0000000000000000\n")
	})
}

// Behind the filter stands the kernel's own count: who enters the sandbox's
// user namespace without the filter cannot make another in it either.
func TestUserNamespacesAreCountedOut(t *testing.T) {
	needs.Root(t)
	needs.Command(t, "nsenter", "unshare")
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name), 0)
	pid := itoa(inspect(t, s, s.Name).Running.InitPID)
	out, err := exec.Command("nsenter", "--target", pid, "--user", "--preserve-credentials", "unshare", "--user", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No space left on device") {
		t.Errorf("unshare past the filter: %v, %s", err, out)
	}
}
