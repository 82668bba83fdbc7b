package control_test

import (
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/client"
	"github.com/agentfense/agentfense/test/harness"
)

// thief listens as any user of the host can, and tells of the tokens it is shown.
func thief(t *testing.T) (port string, shown <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan string, 16)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, call grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(call.Context())
		for _, token := range append(md.Get("authorization"), "nothing")[:1] {
			tokens <- token
		}
		return status.Error(codes.Unauthenticated, "no credentials")
	}))
	go server.Serve(l)
	t.Cleanup(server.Stop)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, tokens
}

// The default token goes to this user's own server and to nobody who listens in
// its place: not while it runs elsewhere, nor while it does not run.
func TestATokenIsShownToItsOwnServerAlone(t *testing.T) {
	box := harness.New(t, binary, nil)
	t.Setenv("AGENTFENSE_HOME", box.Home)
	port, shown := thief(t)
	ask := func(when string) {
		for _, endpoint := range []string{"127.0.0.1:" + port, "localhost:" + port} {
			if r := box.Agentfense("ls", "--endpoint", endpoint); r.Code == 0 {
				t.Errorf("%s: the thief was believed\n%s", when, r.Stdout)
			}
			c, err := client.New(t.Context(), client.WithEndpoint(endpoint))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Codebase(t.Context(), "cb_0123456789abcdef"); err == nil {
				t.Errorf("%s: the thief was believed", when)
			}
			c.Close()
			for range 2 {
				if got := <-shown; got != "nothing" {
					t.Errorf("%s: %s was shown %q", when, endpoint, got)
				}
			}
		}
	}
	s := serve(t, box)
	ask("beside the server")
	_, own, _ := net.SplitHostPort(s.Addr)
	for _, endpoint := range []string{s.Addr, "localhost:" + own} {
		if r := box.Agentfense("ls", "--endpoint", endpoint); r.Code != 0 {
			t.Errorf("%s: exit code %d\n%s", endpoint, r.Code, r.Stderr)
		}
	}
	s.end()
	ask("without a server")
}
