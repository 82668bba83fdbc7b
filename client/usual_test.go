//go:build linux

package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/internal/dialogue"
	"github.com/agentfense/agentfense/internal/endpoint"
	"github.com/agentfense/agentfense/internal/needs"
)

// alone says that a process has a network of its own, serveAs that it is to be a
// server there until its input ends, of the user that is named.
const (
	alone   = "AGENTFENSE_TEST_ALONE"
	serveAs = "AGENTFENSE_TEST_SERVE_AS"
)

// serveUsual is a server where one is usually, which is well and can nothing.
func serveUsual() error {
	if os.Getenv(serveAs) == "nobody" {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", endpoint.Usual)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	healthv1.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	defer s.Stop()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// whileServing does something while somebody serves there.
func whileServing(t *testing.T, who string, do func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serveAs+"="+who)
	d := dialogue.Start(t, cmd)
	d.Hear()
	do()
	if _, stderr, err := d.End(); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
}

// The port may be anybody's: the test has a network of its own.
func TestTheUsualServerIsAskedOnlyIfItCanBeTrusted(t *testing.T) {
	if os.Getenv(alone) == "" {
		needs.Root(t)
		needs.Command(t, "unshare")
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
	var said bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	codebases := func() string {
		out, _ := exec.Command(binary, "codebase", "ls").CombinedOutput()
		return string(out)
	}
	whileServing(t, "nobody", func() {
		for range 2 {
			if at := endpointOf(t); !strings.HasPrefix(at, "unix://"+dir) {
				t.Errorf("somebody else's server at %s is believed", at)
			}
			endServer(t, dir)
		}
		if text := said.String(); strings.Count(text, "127.0.0.1:9000 is in doubt: user 65534 listens there") != 1 || !strings.Contains(text, "WithEndpoint") {
			t.Errorf("said is %q", text)
		}
		if text := codebases(); !strings.Contains(text, "localhost:9000: not asked, for 127.0.0.1:9000 is in doubt: user 65534 listens there") {
			t.Errorf("codebase ls says %q", text)
		}
	})
	whileServing(t, "us", func() {
		if at := endpointOf(t); at != "http://127.0.0.1:9000" {
			t.Errorf("our own server at localhost:9000 is passed over for %s", at)
		}
		if text := codebases(); !strings.Contains(text, "http://127.0.0.1:9000") {
			t.Errorf("codebase ls says %q", text)
		}
	})
	portIsTakenLater(t)
	if text := codebases(); !strings.Contains(text, "none listens at localhost:9000") {
		t.Errorf("codebase ls says %q", text)
	}
}

// portIsTakenLater has a client outlive the server that it found.
func portIsTakenLater(t *testing.T) {
	t.Helper()
	var c *client.Client
	ask := func() error {
		for _, err := range c.Codebases(t.Context(), "") {
			return err
		}
		return nil
	}
	whileServing(t, "us", func() {
		var err error
		if c, err = client.New(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := ask(); !errors.Is(err, client.ErrVersion) {
			t.Errorf("a server that can nothing: %v", err)
		}
	})
	defer c.Close()
	whileServing(t, "nobody", func() {
		if err := ask(); !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), "user 65534 listens there") {
			t.Errorf("somebody else has the port: %v", err)
		}
	})
	whileServing(t, "us", func() {
		// It waits before it connects again.
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			err := ask()
			if errors.Is(err, client.ErrVersion) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("our own server is there again: %v", err)
			}
		}
	})
}

// endpointOf is where a client finds its server.
func endpointOf(t *testing.T) string {
	t.Helper()
	c, err := client.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Endpoint()
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
