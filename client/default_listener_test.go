//go:build linux

package client_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/lib/testenv"
)

// alone marks a test process that has its own network namespace.
const alone = "AGENTFENSE_TEST_ALONE"

// Without an endpoint, no client connects to the default port, not even where a
// process of the same user listens there. The test needs that port, so it runs in its
// own network namespace.
func TestNoClientConnectsToTheDefaultPortUnasked(t *testing.T) {
	if os.Getenv(alone) == "" {
		testenv.Root(t)
		testenv.Command(t, "unshare")
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--net", program, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), alone+"=1", "AGENTFENSE_BINARY="+binary)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	upLoopback(t)
	binary = os.Getenv("AGENTFENSE_BINARY")
	dir := ownServer(t)
	connected := listenAtDefaultPort(t)
	out, err := exec.Command(binary, "codebase", "ls").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "find server: yours does not run: start `agentfense serve`, or give --endpoint") {
		t.Errorf("codebase ls without a server: %v, %q", err, out)
	}
	c, err := client.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at := c.Endpoint(); !strings.HasPrefix(at, "unix://"+dir) {
		t.Errorf("the client uses %s, want the server that it started in %s", at, dir)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	endServer(t, dir)
	if n := connected(); n > 0 {
		t.Errorf("%d connections to the default port, want none", n)
	}
}

// listenAtDefaultPort counts the connections to 127.0.0.1:9000, which it closes.
func listenAtDefaultPort(t *testing.T) (connected func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:9000")
	if err != nil {
		t.Fatal(err)
	}
	count := make(chan int)
	go func() {
		n := 0
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				count <- n
				return
			}
			if err == nil {
				conn.Close()
				n++
			}
		}
	}()
	return func() int {
		l.Close()
		return <-count
	}
}

// upLoopback makes the network of this process have a localhost.
func upLoopback(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
