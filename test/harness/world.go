package harness

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/lib/thread"
)

// A World is a network of a test's own: this process, and what it starts, is on a host that has
// one link, to an internet where the test's servers are. Nothing of it reaches the real one.
type World struct {
	calls chan func() // to the thread that is in the internet
}

// worldVariable says that this process is in a World.
const worldVariable = "AGENTFENSE_TEST_WORLD"

// Addresses of the world. The host's own is a public one, too.
const (
	HostAddr    = "11.0.0.1"
	PublicAddr  = "93.184.216.34"
	OtherAddr   = "93.184.216.35"
	PrivateAddr = "10.1.2.3"
	Metadata    = "169.254.169.254"
	gatewayAddr = "11.0.0.2"

	// Of IPv6, if the kernel has it. What is sent to the silent one is lost.
	PublicAddr6  = "2606:2800:220:1::1"
	SilentAddr6  = "2606:2800:220:1::2"
	hostAddr6    = "2a00:1450::1"
	gatewayAddr6 = "2a00:1450::2"
)

// InWorld runs the tests of a package in a World, which is nil unless root runs them: it
// executes this program again in new namespaces. A TestMain calls it in place of its own work,
// which is run.
func InWorld(world **World, run func() int) int {
	if os.Geteuid() != 0 {
		return run()
	}
	if os.Getenv(worldVariable) == "" {
		return again()
	}
	w, err := newWorld()
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		return 1
	}
	*world = w
	return run()
}

func again() int {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), worldVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig comes when the starting thread ends
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "world:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// newWorld makes the internet and the link to it.
func newWorld() (*World, error) {
	w := &World{calls: make(chan func())}
	made := make(chan error)
	var tid int
	thread.Go(func() {
		tid = unix.Gettid()
		err := unix.Unshare(unix.CLONE_NEWNET)
		made <- err
		if err != nil {
			return
		}
		for call := range w.calls {
			call()
		}
	})
	err := <-made
	if err == nil {
		err = ip("link set lo up", "link add host type veth peer name internet", fmt.Sprintf("link set internet netns %d", tid),
			"addr add "+HostAddr+"/24 dev host", "link set host up", "route add default via "+gatewayAddr)
	}
	if err == nil {
		w.there(func() {
			err = ip("link set lo up", "addr add "+gatewayAddr+"/24 dev internet", "link set internet up")
			for _, addr := range []string{PublicAddr, OtherAddr, PrivateAddr, Metadata} {
				err = errors.Join(err, ip("addr add "+addr+"/32 dev lo"))
			}
		})
	}
	if err == nil && HasIPv6() {
		err = w.linkIPv6()
	}
	return w, err
}

// linkIPv6 gives the link addresses of IPv6, which are not asked whether others have them (nodad).
func (w *World) linkIPv6() error {
	err := ip("-6 addr add "+hostAddr6+"/64 dev host nodad", "-6 route add default via "+gatewayAddr6)
	w.there(func() {
		err = errors.Join(err, ip("-6 addr add "+gatewayAddr6+"/64 dev internet nodad", "-6 addr add "+PublicAddr6+"/128 dev lo nodad"))
	})
	return err
}

// HasIPv6 reports whether the kernel has it, and so the world.
func HasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return err == nil
}

// ip runs ip(8).
func ip(commands ...string) error {
	for _, c := range commands {
		if out, err := exec.Command("ip", strings.Fields(c)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", c, err, out)
		}
	}
	return nil
}

// there calls do on the thread that is in the internet.
func (w *World) there(do func()) {
	done := make(chan struct{})
	w.calls <- func() {
		defer close(done)
		do()
	}
	<-done
}

// NeedWorld skips a test that has no world.
func NeedWorld(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	testenv.Command(t, "ip", "curl")
}

// NeedIPv6 skips a test in a world without IPv6.
func NeedIPv6(t testing.TB) {
	t.Helper()
	NeedWorld(t)
	if !HasIPv6() {
		t.Skip("needs IPv6")
	}
}

// Listen returns a listener at an address of the internet.
func (w *World) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	w.there(func() { l, err = net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Names makes the host's resolver know names: lines of hosts(5). It lasts until the test ends.
func (w *World) Names(t testing.TB, lines ...string) {
	t.Helper()
	cover(t, "/etc/hosts", "127.0.0.1 localhost\n"+strings.Join(lines, "\n")+"\n")
}

// cover gives a file of the host another content until the test ends.
func cover(t testing.TB, path, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	err := os.WriteFile(file, []byte(text), 0o644)
	if err == nil {
		err = unix.Mount(file, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
