package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
)

// RelayVerb runs the empty relay.
const RelayVerb = "__egress-relay"

// relayAddr is where the empty relay listens, on the server's ports.
const relayAddr = "127.0.0.1"

// Relay does the least that a process between two ends does: it accepts, connects to the server
// and copies both ways, by splice(2). It checks nothing. What it costs is the limit of what an
// egress process can reach.
func Relay(_ []string) error {
	failed := make(chan error)
	for _, port := range []string{tlsPort, plainPort} {
		l, err := net.Listen("tcp", net.JoinHostPort(relayAddr, port))
		if err != nil {
			return err
		}
		go func() { failed <- relayAll(l, net.JoinHostPort(serverAddr, port)) }()
	}
	fmt.Fprintln(os.Stdout, "ready")
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin) // until the benchmark ends
		failed <- err
	}()
	return <-failed
}

func relayAll(l net.Listener, to string) error {
	for {
		down, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer down.Close()
			up, err := net.Dial("tcp", to)
			if err != nil {
				return // the client notices
			}
			defer up.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				pass(up, down)
			}()
			pass(down, up)
			<-done
		}()
	}
}

func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // the client notices
	_ = to.(*net.TCPConn).CloseWrite()
}

// startRelay starts the empty relay, and waits until it listens.
func startRelay(self string) (*client, error) {
	c, err := start(exec.Command(self, RelayVerb))
	if err != nil {
		return nil, err
	}
	if said, err := c.out.ReadString('\n'); err != nil || said != "ready\n" {
		return nil, errors.Join(fmt.Errorf("empty relay: said %q: %w", said, err), c.close())
	}
	c.out = bufio.NewReader(c.out)
	return c, nil
}
