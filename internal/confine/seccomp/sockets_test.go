package seccomp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// roleVariable selects what this test binary plays as a child, under filters of its own.
const roleVariable = "SECCOMP_TEST_ROLE"

var roles = map[string]func() error{
	"notified": notified, "quiet": quiet, "closed": closed, "pinging": pinging,
}

func TestMain(m *testing.M) {
	role, isChild := roles[os.Getenv(roleVariable)]
	if !isChild {
		os.Exit(m.Run())
	}
	if err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), role()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestSocketsAreRefused(t *testing.T) {
	for role, what := range map[string]string{
		"notified": "with a listener that answers", "quiet": "where another filter has a listener",
		"closed": "when the listener is closed", "pinging": "but for ICMP where the kernel allows it",
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it hangs where nobody answers
			defer cancel()
			child := exec.CommandContext(ctx, "/proc/self/exe")
			child.Env = append(os.Environ(), roleVariable+"="+role)
			if role == "pinging" {
				child.SysProcAttr = &syscall.SysProcAttr{
					Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
					UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
					GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
				}
			}
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// refusals are sockets with the errno of each; 0: it is allowed.
var refusals = []struct {
	family, kind, protocol int
	want                   unix.Errno
}{
	{unix.AF_VSOCK, unix.SOCK_STREAM, 0, unix.EAFNOSUPPORT},
	{unix.AF_PACKET, unix.SOCK_RAW, 0, unix.EAFNOSUPPORT},
	{unix.AF_INET, unix.SOCK_PACKET, 0, unix.EPERM},
	{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT, unix.EPROTONOSUPPORT},
	{unix.AF_INET, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP, unix.EPERM},
	{unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW, unix.EPERM},
	{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, unix.EPROTONOSUPPORT},
	{unix.AF_INET, unix.SOCK_DCCP, 0, unix.ESOCKTNOSUPPORT},
	{unix.AF_INET, unix.SOCK_STREAM, 0, 0},
	{unix.AF_UNIX, unix.SOCK_DGRAM, 0, 0},
	{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, 0},
}

// attempt tries each of refusals. want, if set, replaces the errno of those that are refused.
func attempt(want unix.Errno) error {
	var errs []error
	for _, r := range refusals {
		if r.want != 0 && want != 0 {
			r.want = want
		}
		fd, err := unix.Socket(r.family, r.kind, r.protocol)
		if err == nil {
			unix.Close(fd)
		}
		if got, _ := errors.AsType[unix.Errno](err); got != r.want {
			errs = append(errs, fmt.Errorf("socket(%d, %#x, %d): got %d, want %d", r.family, r.kind, r.protocol, int(got), int(r.want)))
		}
	}
	return errors.Join(errs...)
}

func notified() error {
	l, why, err := seccomp.ConfineSockets()
	if err != nil || why != nil {
		return errors.Join(err, why)
	}
	done := make(chan error, 1)
	go func() { done <- attempt(0) }() // under the filter, too, as TSYNC does
	var seen []string
	for {
		select {
		case err := <-done:
			return errors.Join(err, checkSeen(seen))
		default:
		}
		ready := []unix.PollFd{{Fd: int32(l.FD()), Events: unix.POLLIN}}
		if n, err := unix.Poll(ready, int(10*time.Millisecond/time.Millisecond)); n <= 0 || err != nil {
			continue
		}
		a, err := l.Receive()
		if err != nil {
			return err
		}
		seen = append(seen, fmt.Sprint(a.Family, a.Type, a.Protocol))
		if err := l.Refuse(a); err != nil {
			return err
		}
	}
}

func checkSeen(seen []string) error {
	var want []string
	for _, r := range refusals {
		if r.want != 0 {
			want = append(want, fmt.Sprint(r.family, r.kind&seccomp.SocketTypes, r.protocol))
		}
	}
	if got, want := strings.Join(seen, ", "), strings.Join(want, ", "); got != want {
		return fmt.Errorf("notified of %s, want %s", got, want)
	}
	return nil
}

func quiet() error {
	first, why, err := seccomp.ConfineSockets() // plays the other filter
	if err != nil || why != nil {
		return errors.Join(err, why)
	}
	go func() {
		if a, err := first.Receive(); err == nil { // the second call asks once whether it gets ICMP
			_ = first.Refuse(a)
		}
	}()
	l, why, err := seccomp.ConfineSockets()
	if l != nil || err != nil || !errors.Is(why, unix.EBUSY) {
		return errors.Join(fmt.Errorf("got the listener %v, want the filter without notifications", l), why, err)
	}
	return attempt(0)
}

func closed() error {
	l, why, err := seccomp.ConfineSockets()
	if err != nil || why != nil {
		return errors.Join(err, why)
	}
	if err := unix.Close(l.FD()); err != nil {
		return err
	}
	return attempt(unix.ENOSYS)
}

func pinging() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
		return err
	}
	l, why, err := seccomp.ConfineSockets()
	if err != nil || why != nil {
		return errors.Join(err, why)
	}
	go func() {
		for {
			if a, err := l.Receive(); err == nil {
				_ = l.Refuse(a)
			}
		}
	}()
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	return errors.Join(err, attempt(0))
}
