package service

import (
	"context"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// UpdateSandbox changes what a stopped sandbox has from its next start on. The result is checked as
// a new sandbox is, so that no client gets by it what it cannot create.
func (c *sandboxServer) UpdateSandbox(ctx context.Context, m *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	r, err := wireconv.DecodeUpdateSandbox(m)
	if err != nil {
		return nil, err
	}
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, held, err := sb.Holder()
	switch {
	case err != nil:
		return nil, err
	case held:
		return nil, errdefs.WithReason(errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox is running: stop it first", sb.ID()), errdefs.SandboxRunning)
	}
	next, err := s.updated(ctx, sb, r)
	if err != nil {
		return nil, err
	}
	err = sb.Update(func(to *record.Record) error {
		to.Net, to.NetLimits, to.Secrets, to.Publish = next.Net, next.NetLimits, next.Secrets, next.Publish
		to.Scratch, to.Limits, to.Ask = next.Scratch, next.Limits, next.Ask
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.describe(ctx, sb)
}

// updated returns the record of a sandbox with what a request changes. Errors: those of a new
// sandbox.
func (s *Service) updated(ctx context.Context, sb *record.Sandbox, r wireconv.UpdateSandbox) (record.Record, error) {
	next := sb.Record()
	if r.Limits != nil {
		r.Limits.Timeout = next.Limits.Timeout
		next.Limits = *r.Limits
	}
	if r.Replaces(wireconv.ListScratch) {
		next.Scratch = r.Scratch
	}
	if err := s.checkScratch(next.Scratch, next.Source, next.Rules, next.Limits); err != nil {
		return next, err
	}
	if r.AskGiven {
		next.Ask = r.Ask
	}
	if r.Replaces(wireconv.ListPublish) {
		next.Publish = r.Publish
	}
	if r.Replaces(wireconv.ListNetLimits) {
		next.NetLimits = r.NetLimits
	}
	if r.Replaces(wireconv.ListSecrets) {
		var err error
		if next.Secrets, err = s.replaceSecrets(ctx, sb, r.Secrets); err != nil {
			return next, err
		}
	}
	return next, s.updateNetwork(&next)
}

// replaceSecrets returns secrets for a sandbox in place of those that it has.
func (s *Service) replaceSecrets(ctx context.Context, sb *record.Sandbox, names []string) ([]hostlist.Secret, error) {
	env, err := remembered(sb)
	if err != nil {
		return nil, err
	}
	if err := checkNotSecret(env, names); err != nil {
		return nil, err
	}
	has := sb.Record()
	return s.secretsFor(ctx, s.secretFinder(), has.Served.OwnerID, names, has.Secrets)
}

// updateNetwork gives the record the network that its hosts, secrets and published ports need.
func (s *Service) updateNetwork(r *record.Record) error {
	all, err := secrets.Of(r)
	if err != nil {
		return err
	}
	asked := wireconv.NewSandbox{AllowNet: r.Hosts(time.Now()), NetLimits: r.NetLimits, Publish: r.Publish}
	for _, one := range all {
		asked.Secrets = append(asked.Secrets, one.Name)
	}
	how := confinement{net: r.Net}
	err = s.useNetwork(&how, asked)
	r.Net, r.NetLimits = how.net, how.netLimits
	return err
}
