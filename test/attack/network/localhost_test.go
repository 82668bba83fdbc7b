package network_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/ownport"
	"github.com/agentfense/agentfense/test/harness"
)

// onLocalhost serves at an address of this host's loopback, and returns the port.
func onLocalhost(t *testing.T, address string) (port string) {
	t.Helper()
	harness.NeedWorld(t)
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "held at %s\n", address)
		if r.URL.Path == "/hold" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	_, port, err = net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// A sandbox reaches a port of this host's loopback that a rule names, by every name of its own
// loopback, and no other port.
func TestAPortOfLocalhostIsReached(t *testing.T) {
	port, other := onLocalhost(t, "127.0.0.1:0"), onLocalhost(t, "127.0.0.1:0")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		script := fmt.Sprintf("for at in localhost 127.0.0.1; do curl -sS http://$at:%s/; curl -s http://$at:%s/ || echo no; done", port, other)
		r := s.Agentfense("run", "--name", s.Name, "--allow-net", "localhost:"+port, "--", "sh", "-c", script)
		want(t, r, "held at 127.0.0.1:0\nno\nheld at 127.0.0.1:0\nno\n")
		contains(t, "the summary", r.Stderr, "network: localhost 2 connections")
		contains(t, "the audit log", s.Agentfense("audit", s.Name).Stdout, "localhost")
	})
}

// A server may be at the address of IPv6 alone, and a program may ask for it there.
func TestAPortOfLocalhostIsReachedByIPv6(t *testing.T) {
	harness.NeedIPv6(t)
	port := onLocalhost(t, "[::1]:0")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		script := fmt.Sprintf("curl -sS http://127.0.0.1:%s/; curl -sS 'http://[::1]:%s/'", port, port)
		want(t, s.Agentfense("run", "--name", s.Name, "--allow-net", "localhost:"+port, "--", "sh", "-c", script), "held at [::1]:0\nheld at [::1]:0\n")
	})
}

// A port of localhost is granted and revoked while the sandbox runs, which cuts its connections.
func TestAPortOfLocalhostIsRevoked(t *testing.T) {
	port := onLocalhost(t, "127.0.0.1:0")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		hold := "until curl -sSN http://localhost:" + port + "/hold > /tmp/held || test -s /tmp/held; do sleep 0.1; done; echo over > /tmp/code; sleep 1000"
		if r := s.Agentfense("run", "--name", s.Name, "--detach", "--allow-net", "example.com", "--", "sh", "-c", hold); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		policy(t, s, "grant", "--net", "localhost:"+port)
		const open = "until grep -qs held /tmp/held; do sleep 0.1; done; test -s /tmp/code || echo open"
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", open), "open\n")
		policy(t, s, "revoke", "--net", "localhost:"+port)
		const ended = "until test -s /tmp/code; do sleep 0.1; done; cat /tmp/code"
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", ended), "over\n")
		want(t, s.Agentfense("exec", s.Name, "--", "sh", "-c", "curl -s http://localhost:"+port+"/ || echo no"), "no\n")
	})
}

// A secret is used at a port of localhost without TLS, and only there; never at a server of
// agentfense, which listens at a port with a mark.
func TestASecretForAPortOfLocalhost(t *testing.T) {
	harness.NeedWorld(t)
	listen := func(l net.Listener, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(reflectSecret)}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { server.Close() })
		_, port, _ := net.SplitHostPort(l.Addr().String())
		return port
	}
	port := listen(net.Listen("tcp", "127.0.0.1:0"))
	own := listen(ownport.Listen(t.Context(), "127.0.0.1:0"))
	t.Setenv("API_KEY", secretValue)
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.Run(`
curl -sS -H "Authorization: Bearer $API_KEY" http://api-key.agentfense.internal/ | head -n1
curl -sS http://api-key.agentfense.internal/ | grep -ac '`+secretValue+`'
curl -s http://localhost:`+port+`/ || echo refused
curl -sS http://api-key-2.agentfense.internal/`, "--secret", "API_KEY@localhost:"+port+",localhost:"+own, "--allow-net", "localhost:"+port)
		want(t, r, "right=true\n0\nrefused\nagentfense: a server of agentfense listens at this port of localhost\n")
	})
}
