package network_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

const (
	serveInside = "serve inside"
	tryAll      = "try all"
)

// serve answers requests at a port of its localhost.
func serve(args []string) int {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "inside") })
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "held")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	server := &http.Server{Addr: args[0], Handler: mux, ReadHeaderTimeout: time.Minute}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	return 1
}

// try connects to everything that has no listener: by TCP and UDP, and to all ports of an address.
func try([]string) int {
	for _, address := range []string{"192.0.2.7:80", "example.com:81", "100.64.9.9:443", "127.0.0.1:9", "[2001:db8::1]:82", "192.0.2.7:80"} {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			fmt.Fprintln(os.Stderr, "connected to", address)
			return 1
		}
	}
	for _, address := range []string{"example.com:443", "127.0.0.1:9"} {
		c, err := net.Dial("udp", address)
		if err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for port := 1; port < 1<<16; port++ {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		_ = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{198, 51, 100, 1}}) // it is refused
		unix.Close(fd)
	}
	return 0
}

// preview starts a sandbox with a server at a published port, and returns the port's address.
func preview(t *testing.T, s *harness.Sandbox, at string) string {
	t.Helper()
	flags := []string{"--detach", "--publish", at}
	r := s.Agentfense(s.ProgramCommand(serveInside, []string{"127.0.0.1:3000"}, flags)...)
	address := publishAddress(t, s)
	contains(t, "the start", r.Stderr, "published: "+address+" is port 3000 inside")
	return address
}

func publishAddress(t *testing.T, s *harness.Sandbox) string {
	t.Helper()
	var doc struct {
		Record struct {
			Address string `json:"publish_address"`
			Publish []struct {
				Host int `json:"host_port"`
			}
		}
	}
	text := s.Agentfense("inspect", s.Name, "--json").Stdout
	if err := json.Unmarshal([]byte(text), &doc); err != nil || len(doc.Record.Publish) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	return fmt.Sprintf("%s:%d", doc.Record.Address, doc.Record.Publish[0].Host)
}

// get asks a published port.
func get(address, path string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + address + path)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return string(text), err
}

func reaches(t *testing.T, when, address string) {
	t.Helper()
	testenv.Eventually(t, when+": "+address+" is reached", func() bool {
		text, err := get(address, "/")
		return err == nil && text == "inside\n"
	})
}

func closes(t *testing.T, when, address string) {
	t.Helper()
	testenv.Eventually(t, when+": "+address+" is closed", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, unix.ECONNREFUSED)
	})
}

// hostPort is a port that no address of this host has.
func hostPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// A published port is reached at the sandbox's own address and nowhere else, as long as the sandbox
// and its process live.
func TestAPublishedPort(t *testing.T) {
	harness.NeedWorld(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s, port := harness.New(t, binary, nil, who...), hostPort(t)
		address := preview(t, s, port+":3000")
		reaches(t, "at first", address)
		for _, host := range []string{"127.0.0.1", harness.HostAddr} {
			if c, err := net.Dial("tcp", net.JoinHostPort(host, port)); err == nil {
				c.Close()
				t.Errorf("%s has the port", host)
			}
		}
		t.Run("another sandbox has another address", func(t *testing.T) {
			const other = "other"
			r := s.Agentfense("create", other, "--publish", port+":3000")
			host, _, _ := net.SplitHostPort(address)
			if r.Code != 0 || !strings.Contains(r.Stderr, "published: 127.0.0.") || strings.Contains(r.Stderr, " "+host+":") {
				t.Errorf("exit %d: %s", r.Code, r.Stderr)
			}
		})
		t.Run("the process is killed", func(t *testing.T) {
			held := hold(t, address)
			signal(t, egressOf(t, s), syscall.SIGKILL)
			if _, err := io.ReadAll(held); err == nil {
				t.Error("the connection ended as if all was sent")
			}
			reaches(t, "with another process", address)
		})
		t.Run("it stops", func(t *testing.T) {
			if r := s.Agentfense("stop", s.Name); r.Code != 0 {
				t.Error(r.Stderr)
			}
			closes(t, "stopped", address)
			contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "port_connected", "to port 3000, published at "+address+", ")
			contains(t, "audit --net", s.Agentfense("audit", s.Name, "--net").Stdout, "PUBLISHED", address)
		})
		t.Run("its supervisor is killed", func(t *testing.T) {
			if again := preview(t, s, port+":3000"); again != address {
				t.Errorf("it is at %s now, and was at %s", again, address)
			}
			reaches(t, "again", address)
			signal(t, parentOf(egressOf(t, s)), syscall.SIGKILL)
			closes(t, "killed", address)
		})
		t.Run("the address is taken", func(t *testing.T) {
			l, err := net.Listen("tcp4", address)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			r := s.Agentfense("run", "--name", s.Name, "--", "true")
			if r.Code != 125 {
				t.Errorf("exit %d", r.Code)
			}
			contains(t, "the refusal", r.Stderr, address+" is taken by another program; publish it at another port of this host, as HOSTPORT:3000")
		})
	})
}

// hold begins an answer that does not end.
func hold(t *testing.T, address string) io.Reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/hold", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	if _, err := io.ReadFull(r.Body, make([]byte, len("held\n"))); err != nil {
		t.Fatal(err)
	}
	return r.Body
}

func TestAnOrdinaryUserPublishesNoPortOfRoot(t *testing.T) {
	s := harness.New(t, binary, nil, harness.Ordinary)
	r := s.Agentfense("run", "--publish", "80:3000", "--", "true")
	if r.Code != 125 {
		t.Errorf("exit %d", r.Code)
	}
	contains(t, "the refusal", r.Stderr, "only root may listen at ports of this host below 1024")
}

// What has no listener is refused by the kernel, and known all the same, also when a program tries
// all ports. Attempts at the sandbox's own localhost are not.
func TestWhatTheKernelRefusesIsKnown(t *testing.T) {
	harness.NeedWorld(t)
	world.Names(t, names...)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(tryAll, nil, "--allow-net", "example.com")
		if r.Code != 0 {
			t.Fatalf("exit %d: %s", r.Code, r.Stderr)
		}
		contains(t, "the summary", r.Stderr, "refused: ")
		log := s.Agentfense("audit", s.Name).Stdout
		contains(t, "the audit log", log, "192.0.2.7 port 80: not in the allowlist, 2 times", "example.com port 81: not in the allowlist",
			"100.64.9.9 port 443: not in the allowlist", "example.com port 443 (udp): UDP is refused, but for DNS", "(others): not in the allowlist")
		if harness.HasIPv6() {
			contains(t, "the audit log", log, "2001:db8::1 port 82")
		}
		if strings.Contains(log, "127.0.0.1") {
			t.Errorf("the log has the sandbox's own localhost:\n%s", log)
		}
		if n := strings.Count(log, "198.51.100.1"); n > 5000 {
			t.Errorf("a scan of all ports left %d records", n)
		}
	})
}

// publishes reaches a server in the container at its published port, and looks at what the kernel
// refuses there.
func (b box) publishes() {
	t := b.t
	ctx, cancel := context.WithCancel(t.Context())
	cmd := b.Command(ctx, b.program(serveInside, "127.0.0.1:3000")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // it was ended
	}()
	reaches(t, "in a container", publishAddress(t, b.Sandbox))
	for _, line := range []string{"to port 3000, published at 127.0.0.", harness.PublicAddr + " port 443: not in the allowlist"} {
		testenv.Eventually(t, "the audit log says "+line, func() bool { return strings.Contains(b.Agentfense("audit", b.Name).Stdout, line) })
	}
}
