package network_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

const floodHosts = "flood"

// flood makes connections to example.com without end: some say nothing, some do not end the head
// of their request, and one sends a body that does not end. It says when there are many.
func flood([]string) int {
	addrs, err := net.LookupHost("example.com")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	addr := netip.MustParseAddr(addrs[0])
	endless, err := net.Dial("tcp", net.JoinHostPort(addrs[0], "80"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, err = io.WriteString(endless, "POST /endless HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n")
	chunk := []byte("10000\r\n" + string(make([]byte, 0x10000)) + "\r\n")
	const before = 256 << 20 // bytes of the body
	for n := 0; n < before && err == nil; n += len(chunk) {
		_, err = endless.Write(chunk)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the body:", err)
		return 1
	}
	many := 0
	for many < 10_000 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			break // no more descriptors
		}
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: addr.As4(), Port: 80}); err != nil && err != unix.EINPROGRESS {
			break
		}
		if many%2 == 0 {
			_, _ = unix.Write(fd, []byte("GET / HTTP/1.1\r\nX: ")) // it may not be connected yet
		}
		many++
	}
	fmt.Println("ready", many)
	for err == nil {
		_, err = endless.Write(chunk)
	}
	select {}
}

// A program that makes all connections that it can leaves other sandboxes their network, takes
// bounded memory, and has its own network again when it ends.
func TestFloods(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		const other = "other"
		start := append([]string{"run", "--detach", "--name", other}, flags(authority, "example.com", "example.com:80")...)
		if r := s.Agentfense(start...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		t.Cleanup(func() { s.Agentfense("stop", other) })
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cmd := s.Command(ctx, s.ProgramCommand(floodHosts, nil, flags(authority, "example.com:80"))...)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var many int
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
			_ = cmd.Wait()
			t.Fatalf("%v\n%s", err, stderr.String())
		} else if _, err := fmt.Sscanf(line, "ready %d\n", &many); err != nil || many < 1000 {
			t.Errorf("got %q, %v", line, err)
		}
		const ask = "curl -sS https://example.com/ http://example.com/"
		for range 3 {
			want(t, s.Agentfense("exec", other, "--", "sh", "-c", ask), "this is example.com\nthis is example.com\n")
		}
		const most = 128 << 10 // in kB
		if got := peakOf(t, egressOf(t, s)); got > most {
			t.Errorf("the egress process took %d kB", got)
		}
		if r := s.Agentfense("stop", s.Name); r.Code != 0 {
			t.Error(r.Stderr)
		}
		_ = cmd.Wait() // it was ended
		want(t, s.Run(ask, flags(authority, "example.com", "example.com:80")...), "this is example.com\nthis is example.com\n")
	})
}

var peak = regexp.MustCompile(`(?m)^VmHWM:\s+([0-9]+) kB$`)

// peakOf returns the most memory that a process had, in kB.
func peakOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := peak.FindSubmatch(text)
	if found == nil {
		t.Fatalf("no peak in %s", text)
	}
	n, _ := strconv.Atoi(string(found[1]))
	return n
}
