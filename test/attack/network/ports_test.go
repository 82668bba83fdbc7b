package network_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const listenInside = "listen"

// listenAt listens at each address and prints whether that works. It holds the ports if the last
// argument says so.
func listenAt(args []string) int {
	var held []net.Listener
	for _, address := range args {
		if address == "hold" {
			time.Sleep(time.Hour) // until it is killed
			break
		}
		switch l, err := net.Listen("tcp", address); {
		case err == nil:
			held = append(held, l)
			fmt.Println("free")
		case errors.Is(err, unix.EADDRINUSE):
			fmt.Println("in use")
		default:
			fmt.Println(err)
		}
	}
	runtime.KeepAlive(held)
	return 0
}

// portRules allow ports at which a program inside could listen.
var portRules = []string{"example.com:8443", "*.www.example.com:9443"}

// checkPorts checks that the ports of portRules are ours from the start, also where the hosts are
// not known yet, and that others and the loopback's stay the programs'. A port that a program has
// first stays the program's, which the audit log says.
func checkPorts(t *testing.T, s *harness.Sandbox, command func(args ...string) *exec.Cmd) {
	t.Helper()
	out, err := command("0.0.0.0:8443", ":8443", "0.0.0.0:9443", ":9443", "127.0.0.1:9443", "0.0.0.0:7443", "0.0.0.0:7444").Output()
	if expected := "in use\nin use\nin use\nin use\nfree\nfree\nfree\n"; err != nil || string(out) != expected {
		t.Errorf("got %q, %v, want %q", out, err, expected)
	}
	holder := command("0.0.0.0:7443", "0.0.0.0:7444", "hold")
	stdout, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, len("free\nfree\n"))
	if _, err := io.ReadFull(stdout, said); err != nil || string(said) != "free\nfree\n" {
		t.Fatalf("the program says %q, %v", said, err)
	}
	policy(t, s, "grant", "--net", "example.com:7443")
	policy(t, s, "grant", "--net", "*.www.example.com:7444")
	_ = holder.Process.Kill() // the command goes with it
	_ = holder.Wait()
	for _, place := range []string{"example.com port 7443", "*.www.example.com port 7444"} {
		testenv.Eventually(t, "the audit log has "+place, func() bool {
			return strings.Contains(s.Agentfense("audit", s.Name).Stdout, place+": a program inside listens at this port")
		})
	}
	policy(t, s, "revoke", "--net", "*.www.example.com:9443")
	out, err = command("0.0.0.0:8443", "0.0.0.0:9443").Output()
	if expected := "in use\nfree\n"; err != nil || string(out) != expected {
		t.Errorf("after the revocation: got %q, %v, want %q", out, err, expected)
	}
}

// No program inside can take a port that a rule allows.
func TestPortsOfHostsAreReserved(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.RunProgram(listenInside, nil, append(flags(authority, portRules...), "--detach")...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		checkPorts(t, s, func(args ...string) *exec.Cmd {
			command := append([]string{"exec", s.Name, "--", "env", harness.ProgramVariable + "=" + listenInside, "/opt/program"}, args...)
			return s.Command(t.Context(), command...)
		})
	})
}
