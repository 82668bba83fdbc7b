package network_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// The authority of opened connections is that of the sandbox, not of one egress process: another
// process goes on with it. Its key is in the memory of the supervisor and of the egress process:
// no other process, no file, no log, no output and no crash has it.
func TestNothingTellsTheAuthoritysKey(t *testing.T) {
	authority := internet(t, show)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		args := trusting(t, authority, "run", "--name", s.Name, "--detach", "--net-allow", "example.com=GET /show/a", "--", "sleep", "1000")
		if r := s.Agentfense(args...); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		const look = `curl -sS https://example.com/show/a; ls /run/agentfense; (: > /run/agentfense/ca.pem) || cat /run/agentfense/ca.pem`
		r := s.Agentfense("exec", s.Name, "--", "sh", "-c", look)
		certificate, is := strings.CutPrefix(r.Stdout, "GET /show/a \nREADME.md\nbwrap.socket\nca-bundle.pem\nca.pem\ndenied.jsonl\n")
		if !is {
			t.Fatalf("got %s%s", r.Stdout, r.Stderr)
		}
		policy(t, s, "grant", "--net", "other.example.net,intercept GET /show/a")
		const both = `for p in a b; do curl -sS -o /dev/null -w '%{http_code}\n' https://other.example.net/show/$p; done`
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", both), "200\n403\n")
		key := keyOf(t, s, certificate)
		key.check(t, s)
		old := egressOf(t, s)
		signal(t, old, syscall.SIGQUIT) // Go writes where each goroutine is
		testenv.Eventually(t, "the process has ended", func() bool { return syscall.Kill(old, 0) != nil })
		const again = `until curl -sS https://example.com/show/a 2>/dev/null; do sleep 0.1; done; cat /run/agentfense/ca.pem`
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", again), "GET /show/a \n"+certificate)
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", both), "200\n403\n")
		key.check(t, s)
		s.Agentfense("stop", s.Name)
		key.checkFiles(t, s)
		// The next start has another authority.
		if r := s.Agentfense("exec", s.Name, "--", "cat", "/run/agentfense/ca.pem"); r.Code != 0 || r.Stdout == certificate {
			t.Errorf("exit %d, the certificate is %s", r.Code, r.Stdout)
		}
	})
}

// authorityKey is the private number of an authority, as its encodings have it and as arithmetic
// with words of the machine has it.
type authorityKey [2]string

// keyOf finds the key of a certificate in the memory of the supervisor.
func keyOf(t *testing.T, s *harness.Sandbox, certificate string) authorityKey {
	t.Helper()
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		t.Fatalf("not a certificate: %s", certificate)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	const (
		head  = "\x30\x77\x02\x01\x01\x04\x20" // RFC 5915: an ECPrivateKey with one of 32 bytes
		whole = 2 + 0x77
	)
	for rest := memory(t, parentOf(egressOf(t, s))); ; {
		at := bytes.Index(rest, []byte(head))
		if at < 0 || at+whole > len(rest) {
			t.Fatal("the supervisor does not have the key: this test sees nothing")
		}
		key, err := x509.ParseECPrivateKey(rest[at : at+whole])
		if err == nil && key.PublicKey.Equal(parsed.PublicKey.(*ecdsa.PublicKey)) {
			number := rest[at+len(head):][:32]
			reversed := slices.Clone(number)
			slices.Reverse(reversed)
			return authorityKey{string(number), string(reversed)}
		}
		rest = rest[at+1:]
	}
}

// found returns the forms of the key that are in b.
func (k authorityKey) found(b []byte) []string { return append(found(b, k[0]), found(b, k[1])...) }

// check looks for the key in everything but the two processes that must have it.
func (k authorityKey) check(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	egress := egressOf(t, s)
	if len(k.found(memory(t, egress))) == 0 {
		t.Error("the egress process does not have the key: this test sees nothing")
	}
	looked := 0
	for _, p := range harness.Processes(s.Home) {
		if p.PID == egress || p.Role == harness.Supervisor {
			continue
		}
		looked++
		if forms := k.found(memory(t, p.PID)); len(forms) > 0 {
			t.Errorf("process %d, a %s, has the key: %q", p.PID, p.Role, forms)
		}
	}
	if looked < 3 {
		t.Errorf("looked at %d processes only", looked)
	}
	for _, args := range [][]string{{"inspect", s.Name, "--json"}, {"audit", s.Name, "--json"}, {"logs", s.Name}, {"exec", s.Name, "--", "sh", "-c", "cat /run/agentfense/* /proc/*/environ /proc/*/cmdline"}} {
		if r := s.Agentfense(args...); len(k.found([]byte(r.Stdout+r.Stderr))) > 0 {
			t.Errorf("agentfense %q prints the key", args)
		}
	}
	k.checkFiles(t, s)
}

func (k authorityKey) checkFiles(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	eachFile(t, s, func(path string, b []byte) {
		if forms := k.found(b); len(forms) > 0 {
			t.Errorf("%s has the key: %q", path, forms)
		}
	})
}
