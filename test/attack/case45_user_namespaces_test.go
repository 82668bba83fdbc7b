package attack_test

import (
	number "encoding/binary"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
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
	probes["fsconfig"] = func() error {
		return syscallError(unix.SYS_FSCONFIG, 0, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	}
	probes["mount an overlay"] = func() error {
		return unix.Mount("overlay", "/tmp", "overlay", 0, "lowerdir=/tmp,upperdir=/tmp,workdir=/tmp")
	}
	probes["change nf_tables"] = func() error { return changeTables() }
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
			"fsconfig":                             "EPERM",
			"mount an overlay":                     "EPERM",
			"change nf_tables":                     "EPERM EPROTONOSUPPORT EAFNOSUPPORT",
			"join PID 1's user namespace":          "EPERM",
		})
		prints(t, s, `echo 100 2>&- > /proc/sys/user/max_user_namespaces && echo raised
unshare -U true 2>&- && echo unshared
unshare -r true 2>&- && echo unshared
grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | sort -u -k2 | cut -f2`, "0000000000000000\n")
	})
}

// The kernel's limit applies in addition to the filter: a process that enters the sandbox's
// user namespace without the filter cannot make another namespace either.
func TestUserNamespacesAreCountedOut(t *testing.T) {
	testenv.Root(t)
	testenv.Command(t, "nsenter", "unshare")
	s := harness.New(t, binary, nil)
	wantCode(t, s.Agentfense("run", "--detach", "--name", s.Name), 0)
	pid := itoa(inspect(t, s, s.Name).Running.InitPID)
	out, err := exec.Command("nsenter", "--target", pid, "--user", "--preserve-credentials", "unshare", "--user", "true").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "No space left on device") {
		t.Errorf("unshare past the filter: %v, %s", err, out)
	}
}

// changeTables asks netfilter, which listens in every network namespace, for
// the beginning of a batch of changes (linux/netfilter/nfnetlink.h), and
// returns what it answers.
func changeTables() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const length, begin, request, acknowledge = 20, 0x10, 1, 4
	message := []byte{
		length, 0, 0, 0, begin, 0, request | acknowledge, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 10, // family, version, subsystem nf_tables
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 1<<12)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < length {
		return err
	}
	// struct nlmsgerr: the error, negative, behind the header.
	if no := -int32(number.NativeEndian.Uint32(answer[16:])); no != 0 {
		return unix.Errno(no)
	}
	return nil
}
