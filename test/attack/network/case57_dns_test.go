package network_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/test/harness"
)

const resolveByThemselves = "resolve"

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
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		r := s.RunProgram(resolveByThemselves, nil, "--allow-net", "example.com")
		if r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
	})
}
