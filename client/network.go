package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// AllowedHost is a host that a sandbox may reach.
type AllowedHost struct {
	Host  string    // such as "example.com:443"
	Until time.Time // when it ends to be allowed; zero: never
}

func hostsFrom(allowed []*sandboxv1.AllowedHost) []AllowedHost {
	var hosts []AllowedHost
	for _, a := range allowed {
		hosts = append(hosts, AllowedHost{a.Host, timeFrom(a.Until)})
	}
	return hosts
}

// Grant lets the sandbox reach more hosts, at once, and returns all of them. The forms are those
// of WithAllowNet. The grants end after the time last; 0: when they are revoked. Errors: ErrInvalid
// for a malformed host; ErrDenied for one that the server's configuration does not include;
// ErrPrecondition for a sandbox that runs without a network.
func (s *Sandbox) Grant(ctx context.Context, last time.Duration, hosts ...string) ([]AllowedHost, error) {
	r := &sandboxv1.ChangeHostsRequest{SandboxId: s.ID, Grant: hosts}
	if last != 0 {
		r.GrantFor = durationpb.New(last)
	}
	return s.changeHosts(ctx, "grant hosts", r)
}

// Revoke no longer lets the sandbox reach hosts, and returns the others. Connections to the revoked
// ones are closed when it returns. Errors: ErrNotFound for a host that is not allowed; ErrInvalid.
func (s *Sandbox) Revoke(ctx context.Context, hosts ...string) ([]AllowedHost, error) {
	return s.changeHosts(ctx, "revoke hosts", &sandboxv1.ChangeHostsRequest{SandboxId: s.ID, Revoke: hosts})
}

func (s *Sandbox) changeHosts(ctx context.Context, operation string, r *sandboxv1.ChangeHostsRequest) ([]AllowedHost, error) {
	sb, err := s.c.sandboxes.ChangeHosts(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, operation, err)
	}
	return hostsFrom(sb.AllowNet), nil
}
