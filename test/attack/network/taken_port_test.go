package network_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

const takePorts = "take"

// take listens at a port of all addresses before a name below a wildcard has one of its own there,
// and connects to that name.
func take([]string) int {
	l, err := net.Listen("tcp4", "0.0.0.0:8443")
	if err == nil {
		defer l.Close()
		var c net.Conn
		if c, err = net.Dial("tcp", "a.example.com:8443"); err == nil {
			defer c.Close()
			var own net.Conn
			if own, err = l.Accept(); err == nil {
				own.Close()
			}
		}
	}
	// The port of a host that has an address is taken.
	if other, listenErr := net.Listen("tcp4", "0.0.0.0:9443"); listenErr == nil {
		other.Close()
		err = errors.Join(err, errors.New("the port of a named host is free"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A program that listens at an allowed port gets the connections to it that are made inside, and
// nothing leaves. The audit log says so.
func TestAPortThatAProgramTakes(t *testing.T) {
	internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.RunProgram(takePorts, nil, "--allow-net", "*.example.com:8443", "--allow-net", "example.com:9443"); r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "a.example.com port 8443: a program inside listens at this port")
	})
}
