package service

import (
	"cmp"
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// useNetwork gives a new sandbox the network that its hosts, secrets and published ports need, with
// limits that are not above those of the configuration. Errors: Denied for hosts and ports that the
// configuration does not allow; Invalid for limits of a network that has none; Precondition for a
// port that a host has.
func (s *Service) useNetwork(how *confinement, r wireconv.NewSandbox) (err error) {
	if len(r.AllowNet)+len(r.Secrets)+len(r.Publish) > 0 {
		how.net = record.NetNamed
	}
	if r.NetLimits != "" && how.net != record.NetNamed && how.net != record.NetNone {
		return errdefs.New(errdefs.Invalid, "net_limits: the network of this sandbox (%s, runtime.docker.network_mode) has no limits; name its hosts in allow_net", how.net)
	}
	if err := s.permitHosts("allow_net", r.AllowNet); err != nil {
		return err
	}
	ports := published.Ports{Publish: r.Publish}
	err = cmp.Or(s.permitPorts(ports), ports.CheckHosts(r.AllowNet), published.CheckRights(ports.Publish))
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "publish: %w", err)
	}
	how.netLimits, err = hostlist.LimitsWithin(r.NetLimits, s.config.Network.Limits)
	return err
}

// permitHosts refuses hosts of a field that the configuration does not include. Errors: Denied.
func (s *Service) permitHosts(field string, hosts []string) error {
	if err := hostlist.CheckWithin(hosts, s.config.Network.Allow); err != nil {
		return errdefs.New(errdefs.KindOf(err), "%s: %w", field, err)
	}
	return nil
}

// permitPorts refuses published ports unless the configuration allows them. Errors: Denied.
func (s *Service) permitPorts(ports published.Ports) error {
	if len(ports.Publish) > 0 && !s.config.Network.Publish {
		return errdefs.New(errdefs.Denied, "this server publishes no ports (network.publish in its configuration)")
	}
	return nil
}

// lowerLimits brings the limits of a sandbox's network down to those of the configuration.
func (s *Service) lowerLimits(sb *record.Sandbox) error {
	has := sb.Record().NetLimits
	limits, err := hostlist.LimitsWithin(has, s.config.Network.Limits)
	if err != nil || limits == has {
		return err
	}
	return sb.Update(func(r *record.Record) error {
		r.NetLimits = limits
		return nil
	})
}

// ChangeHosts grants and revokes hosts that a sandbox may reach. When it returns, no connection to
// a revoked host is open.
func (c *sandboxServer) ChangeHosts(ctx context.Context, m *sandboxv1.ChangeHostsRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	r, err := wireconv.DecodeChangeHosts(m)
	if err != nil {
		return nil, err
	}
	// Not while it starts: the supervisor reads the record once.
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if len(r.Change.Grant)+len(r.Change.Revoke) == 0 {
		return nil, errdefs.New(errdefs.Invalid, "one of grant or revoke is required")
	}
	if err := s.permitHosts("grant", r.Change.Grant); err != nil {
		return nil, err
	}
	r.Change.Reason = "asked of the server by " + vpath.Escape(callerOf(ctx).Name)
	if err := sb.ChangeHosts(r.Change); err != nil {
		return nil, err
	}
	return s.changed(ctx, sb, func(ctx context.Context, c *api.Client) error { return c.TakeHosts(ctx) })
}
