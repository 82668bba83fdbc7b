package network_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// live starts a sandbox that may reach example.com, and has a connection of it open.
func live(t *testing.T, authority string, who ...harness.Option) *harness.Sandbox {
	t.Helper()
	s := harness.New(t, binary, nil, who...)
	const hold = "curl -sSN https://example.com/hold > /tmp/held; echo $? > /tmp/code; sleep 1000"
	if r := s.Agentfense(append(append([]string{"run", "--name", s.Name, "--detach"}, flags(authority, "example.com")...), "--", "sh", "-c", hold)...); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	const open = "until grep -qs held /tmp/held; do sleep 0.1; done; echo open"
	want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", open), "open\n")
	return s
}

// wantEnded waits until the connection of live has ended.
func wantEnded(t *testing.T, s *harness.Sandbox) {
	t.Helper()
	const ended = `until test -s /tmp/code; do sleep 0.1; done; test "$(cat /tmp/code)" != 0 && echo cut`
	want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ended), "cut\n")
}

// asked returns which of two hosts a running sandbox reaches.
func asked(s *harness.Sandbox) string {
	const ask = `for h in example.com other.example.net; do curl -sS https://$h/ 2>/dev/null || echo no; done`
	return s.Agentfense("exec", s.Name, "--", "sh", "-c", ask).Stdout
}

func policy(t *testing.T, s *harness.Sandbox, verb string, args ...string) {
	t.Helper()
	if r := s.Agentfense(append([]string{"policy", verb, s.Name}, args...)...); r.Code != 0 {
		t.Fatalf("policy %s %q: exit %d: %s", verb, args, r.Code, r.Stderr)
	}
}

// What is granted can be reached at once. What is revoked cannot, and its connections are closed.
func TestHostsChangeWhileTheSandboxRuns(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := live(t, authority, who...)
		policy(t, s, "grant", "--net", "other.example.net")
		if got := asked(s); got != "this is example.com\nthis is other.example.net\n" {
			t.Errorf("after the grant: %q", got)
		}
		policy(t, s, "revoke", "--net", "example.com")
		wantEnded(t, s)
		if got := asked(s); got != "no\nthis is other.example.net\n" {
			t.Errorf("after the revocation: %q", got)
		}
		policy(t, s, "revoke", "--net", "other.example.net")
		if got := asked(s); got != "no\nno\n" {
			t.Errorf("without a host: %q", got)
		}
		policy(t, s, "grant", "--net", "example.com")
		if got := asked(s); got != "this is example.com\nno\n" {
			t.Errorf("granted again: %q", got)
		}
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout,
			"hosts_changed", "granted other.example.net:443, 2 hosts allowed from now on, policy grant")
		testenv.Eventually(t, "the cut connection is in the audit log", func() bool {
			return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "example.com port 443: no longer allowed")
		})
	})
}

// A grant ends by itself, with the connections that it allowed.
func TestAGrantEndsInTime(t *testing.T) {
	authority := internet(t)
	s := live(t, authority)
	policy(t, s, "revoke", "--net", "example.com")
	wantEnded(t, s)
	policy(t, s, "grant", "--net", "example.com", "--for", "1ms")
	const denied = `until ! curl -sS https://example.com/ 2>/dev/null; do sleep 0.1; done; echo over`
	want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", denied), "over\n")
	log := s.Agentfense("audit", s.Name).Stdout
	contains(t, "the audit log", log, "revoked example.com:443, 0 hosts allowed from now on, the time is over")
	if n := strings.Count(log, "the time is over"); n != 1 {
		t.Errorf("the end was recorded %d times", n)
	}
}

// The end of a grant cuts the connections that it allowed, and no others.
func TestTheEndOfAGrantCutsConnections(t *testing.T) {
	authority := internet(t)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := live(t, authority, who...)
		const hold = "curl -sSN https://other.example.net/hold 2>/dev/null; echo ended $?"
		for seconds := 1; ; seconds *= 2 {
			policy(t, s, "grant", "--net", "other.example.net", "--for", fmt.Sprint(seconds, "s"))
			r := s.Agentfense("exec", s.Name, "--", "sh", "-c", hold)
			if !strings.HasPrefix(r.Stdout, "held\n") && seconds < 60 {
				continue // the grant was over before
			}
			if !strings.HasPrefix(r.Stdout, "held\nended ") || r.Stdout == "held\nended 0\n" {
				t.Errorf("got %q", r.Stdout)
			}
			break
		}
		if r := s.Agentfense("exec", s.Name, "--", "sh", "-c", "test -s /tmp/code"); r.Code == 0 {
			t.Error("the connection to the other host was cut, too")
		}
		testenv.Eventually(t, "the cut connection is in the audit log", func() bool {
			return strings.Contains(s.Agentfense("audit", s.Name).Stdout, "other.example.net port 443: no longer allowed")
		})
	})
}

// An egress process that does not answer keeps no connection that was revoked.
func TestARevocationEndsAProcessThatDoesNotAnswer(t *testing.T) {
	authority := internet(t)
	s := live(t, authority)
	signal(t, egressOf(t, s), syscall.SIGSTOP)
	policy(t, s, "revoke", "--net", "example.com")
	wantEnded(t, s)
	policy(t, s, "grant", "--net", "other.example.net")
	const ask = `for i in $(seq 1000); do curl -sS --max-time 60 https://other.example.net/ 2>/dev/null && break; done`
	want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ask), "this is other.example.net\n")
}
