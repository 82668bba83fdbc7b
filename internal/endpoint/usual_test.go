//go:build linux

package endpoint_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/dialogue"
	"github.com/agentfense/agentfense/internal/endpoint"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/needs"
)

// variable makes this program one that listens, as somebody else, until its input
// ends, or that asks who does.
const variable = "AGENTFENSE_TEST_AS"

func TestMain(m *testing.M) {
	who := os.Getenv(variable)
	if who == "" {
		os.Exit(m.Run())
	}
	if err := actAs(who); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// actAs listens as us, as nobody or beneath "root DIR", or asks as nobody.
func actAs(who string) error {
	var err error
	dir, isRoot := strings.CutPrefix(who, "root ")
	if isRoot {
		err = unix.Chroot(dir)
	} else if who != "us" {
		err = syscall.Setuid(65534)
	}
	if err != nil {
		return err
	}
	if port, asks := strings.CutPrefix(who, "nobody asks "); asks {
		address, err := endpoint.Trusted(port)
		if err == nil {
			fmt.Println(address)
		}
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// as is the line that this program prints as somebody else: the port at which it
// listens.
func as(t *testing.T, who string) (line string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable+"="+who)
	d := dialogue.Start(t, cmd)
	t.Cleanup(func() {
		if _, stderr, err := d.End(); err != nil {
			t.Errorf("%v\n%s", err, stderr)
		}
	})
	return d.Hear()
}

func wantTrusted(t *testing.T, port, want string) {
	t.Helper()
	got, err := endpoint.Trusted(port)
	if err != nil || got != want {
		t.Errorf("the address is %q, %v, want %q", got, err, want)
	}
}

func wantDoubt(t *testing.T, port, says string) {
	t.Helper()
	got, err := endpoint.Trusted(port)
	if got != "" || !fault.Is(err, fault.Denied) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "AGENTFENSE_ENDPOINT") {
		t.Errorf("the address is %q, %v, want Denied with %q", got, err, says)
	}
}

func TestAListenerOfOurOwnIsTrusted(t *testing.T) {
	port := as(t, "us")
	wantTrusted(t, port, "127.0.0.1:"+port)
	for _, address := range []string{"0.0.0.0:0", "[::1]:0", "[::]:0", "127.0.0.2:0"} {
		network := "tcp6"
		if !strings.HasPrefix(address, "[") {
			network = "tcp4"
		}
		l, err := net.Listen(network, address)
		if errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a host without IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		want := "127.0.0.1:" + port
		switch address {
		case "[::1]:0", "[::]:0": // the latter leaves 127.0.0.1 to anybody
			want = "[::1]:" + port
		case "127.0.0.2:0": // localhost does not lead there
			want = ""
		}
		wantTrusted(t, port, want)
		l.Close()
	}
}

// It would be given what is uploaded, and a token.
func TestAListenerOfSomebodyElseIsNotTrusted(t *testing.T) {
	needs.Root(t)
	port := as(t, "nobody")
	wantDoubt(t, port, "127.0.0.1:"+port+" is in doubt: user 65534 listens there")
	// Neither does it become so beside ours.
	if l, err := net.Listen("tcp", "[::1]:"+port); err == nil {
		defer l.Close()
		wantDoubt(t, port, "user 65534 listens there")
	}
}

// The name may lead to the one that is in doubt.
func TestTheAdviceIsAnAddress(t *testing.T) {
	needs.Root(t)
	port := as(t, "nobody")
	wantDoubt(t, port, "only if you trust a listener there, name it by its address, 127.0.0.1:"+port+" or [::1]:"+port+",")
}

// So it is noticed when a port goes from hand to hand.
func TestWhoseListenerItIs(t *testing.T) {
	listen := func(address string) (net.Listener, string) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l, l.Addr().String()
	}
	l, address := listen("127.0.0.1:0")
	whose := endpoint.WhoseUsual(address)
	first, err := whose()
	if again, errAgain := whose(); first == "" || again != first || err != nil || errAgain != nil {
		t.Errorf("%q, %v, then %q, %v", first, err, again, errAgain)
	}
	l.Close()
	if _, err := whose(); !fault.Is(err, fault.Unavailable) {
		t.Errorf("nobody listens: %v", err)
	}
	listen(address)
	if second, err := whose(); second == first || err != nil {
		t.Errorf("%q, %v, another listener than %q", second, err, first)
	}
}

func TestAListenerOfRootIsTrustedByAll(t *testing.T) {
	needs.Root(t)
	port := as(t, "us")
	if got := as(t, "nobody asks "+port); got != "127.0.0.1:"+port {
		t.Errorf("the address is %q", got)
	}
}

// As in a sandbox that has the host's network.
func TestAListenerThatSeesOtherFilesIsNotTrusted(t *testing.T) {
	needs.Root(t)
	wantDoubt(t, as(t, "root "+t.TempDir()), "has another root, as in a sandbox")
}

// Its socket is on the way from one process to another.
func TestAListenerWithoutAProcessIsNotTrusted(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.Close()
	wantDoubt(t, port, "cannot be told which process")
}
