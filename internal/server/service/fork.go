package service

import (
	"context"
	"errors"
	"time"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot/freeze"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

// ForkSandbox makes sandboxes that begin with a state of another one.
func (c *snapshotServer) ForkSandbox(ctx context.Context, m *sandboxv1.ForkSandboxRequest) (*sandboxv1.ForkSandboxResponse, error) {
	s := c.service
	r, err := wireconv.DecodeForkSandbox(m)
	if err != nil {
		return nil, err
	}
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	change, err := s.forkChange(ctx, sb, r)
	if err != nil {
		return nil, err
	}
	// Checked before a fork exists, because its audit log would stay.
	if err := s.store.CheckRoom(ctx, sb.Record().Served.OwnerID, len(r.Names), s.config.Sandbox.MaxPerUser); err != nil {
		return nil, err
	}
	defer s.home.MakeRoom()()
	forks, err := s.fork(context.WithoutCancel(ctx), sb, snapshot.ForkOptions{Names: r.Names, Snapshot: r.Snapshot, Change: change})
	if err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	answer := &sandboxv1.ForkSandboxResponse{}
	for _, fork := range forks {
		d, err := s.describe(ctx, fork)
		if err != nil {
			return nil, err
		}
		answer.Sandboxes = append(answer.Sandboxes, d)
	}
	return answer, nil
}

// fork makes all forks, or none.
func (s *Service) fork(ctx context.Context, sb *record.Sandbox, o snapshot.ForkOptions) ([]*record.Sandbox, error) {
	o.Freeze = freeze.Of(ctx, sb)
	forks, err := snapshot.Fork(sb, o)
	failpoint.At("fork sandbox: made")
	for _, fork := range forks {
		if err == nil {
			err = s.store.AddSandbox(ctx, indexed(fork), s.config.Sandbox.MaxPerUser)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.removeForks(ctx, forks))
	}
	for _, fork := range forks {
		s.expireAt(fork)
	}
	return forks, nil
}

// forkChange checks a request and returns how the record of a fork differs from that of its
// sandbox.
func (s *Service) forkChange(ctx context.Context, sb *record.Sandbox, r wireconv.Fork) (func(*record.Record), error) {
	of := sb.Record()
	// The configuration may have become narrower since.
	if _, err := s.runtimeOf(callerOf(ctx), of.Runtime, of.Image); err != nil {
		return nil, err
	}
	expires := of.Served.ExpiresAt
	switch {
	case r.ExpiresIn > 0:
		expires = time.Now().UTC().Add(r.ExpiresIn)
	case of.IsExpired(time.Now()):
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox has expired: set expires_in for the forks", sb.ID())
	}
	if r.Rules != nil {
		if err := s.checkForkRules(&of, r); err != nil {
			return nil, err
		}
	}
	return func(rec *record.Record) {
		v := rec.Served
		v.ExpiresAt, v.Running, v.StartedAt, v.StoppedAt, v.Failure = expires, false, time.Time{}, time.Time{}, ""
		if r.Rules != nil {
			rec.SetRules(r.Rules.Policy, preset.Attribute(r.Rules.Policy, wireconv.SentNote))
			v.Sent = r.Rules.Sent
		}
	}, nil
}

// checkForkRules refuses rules that no sandbox may have, and rules that permit more than those of
// the other sandbox, unless the caller asks for that and the configuration permits it. Errors:
// Invalid, Exhausted; Denied for wider rules.
func (s *Service) checkForkRules(of *record.Record, r wireconv.Fork) error {
	rules := r.Rules.Policy
	if err := checkRulesOf("rules.permissions", rules); err != nil {
		return err
	}
	if err := checkRuleRoom(*of, rules); err != nil {
		return err
	}
	if err := s.checkScratch(of.Scratch, of.Source, rules, of.Limits); err != nil {
		return err
	}
	if r.AllowWider && s.config.Sandbox.WiderForks {
		return nil
	}
	wider, err := s.widened(of, rules)
	switch {
	case err != nil:
		return err
	case wider == nil:
		return nil
	case !r.AllowWider:
		return errdefs.New(errdefs.Denied, "rules: they permit more than those of sandbox %s, at %s: set allow_wider to ask for that", of.ID, wider.Path)
	}
	return errdefs.New(errdefs.Denied, "rules: they permit more than those of sandbox %s, at %s: this server does not let forks do that (sandbox.wider_forks in its configuration)", of.ID, wider.Path)
}

// widened returns a difference by which rules permit more than those of a record; nil if there is
// none.
func (s *Service) widened(of *record.Record, rules []policy.Rule) (*prove.Difference, error) {
	reserved, err := s.home.Reserved(of.Source)
	if err != nil {
		return nil, err
	}
	before, err := policy.Compile(of.Rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, err
	}
	after, err := policy.Compile(rules, policy.Options{Reserved: reserved})
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "rules: %w", err)
	}
	found, err := prove.Diff(before, after)
	if err != nil {
		return nil, err
	}
	for _, d := range found {
		if d.Widens() {
			return &d, nil
		}
	}
	return nil, nil
}
