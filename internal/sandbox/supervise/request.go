package supervise

import (
	"context"
	"net/netip"
	"strings"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// handleRequest puts what the client at c asks for to whoever answers asks, and tells it the
// decision. It is no reason to stay.
func (s *supervisor) handleRequest(ctx context.Context, c api.Conn, a *api.Ask) {
	s.release()
	defer s.holdAgain()
	ask, permitted, err := s.checkRequest(a)
	if err != nil {
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(err)}))
		return
	}
	ctx, cancel := untilClientLeaves(ctx, c)
	defer cancel()
	if err := c.Send(api.Reply{OK: true}); err != nil {
		return
	}
	d := api.Decision{Allowed: true, Permitted: true}
	if !permitted {
		r := s.asks.Ask(ask, ctx.Done())
		if r.Withdrawn {
			return
		}
		d = api.Decision{Allowed: r.Allowed, Scope: r.Scope, Suppressed: r.Suppressed}
	}
	s.warn("control: decision not delivered", c.Send(api.Reply{Decision: &d}))
}

// checkRequest returns the ask that a client wants to be put, or that it is permitted already.
// What the policy hides or masks cannot be asked for: an answer of a person who sees only a name
// must not show it. Errors: Precondition, Denied, Invalid.
func (s *supervisor) checkRequest(a *api.Ask) (ask api.Ask, permitted bool, err error) {
	switch {
	case s.asks == nil:
		return ask, false, errNotAsking(s.record.Name)
	case a == nil || a.Reason == "" || len(a.Reason) > api.MaxReason:
		return ask, false, errdefs.New(errdefs.Invalid, "reason: want 1 to %d bytes", api.MaxReason)
	}
	ask = api.Ask{Requested: true, Operation: api.OperationRequest, Reason: a.Reason}
	if a.Host != "" {
		ask.Host = a.Host
		permitted, err = s.checkHostRequest(a.Host)
		return ask, permitted, err
	}
	path, err := vpath.ParseText(a.Path)
	if err != nil {
		return ask, false, err
	}
	d := s.policy.Load().Decide(path)
	switch {
	case path.IsRoot():
		return ask, false, errdefs.New(errdefs.Invalid, "path: want one file of the workspace")
	case a.Need != policy.Read && a.Need != policy.Write:
		return ask, false, errdefs.New(errdefs.Invalid, "permission %s: want read or write", a.Need)
	case d.Permission >= a.Need:
		return ask, true, nil
	case d.Permission == policy.None, path == policy.ProjectFile, !d.Transform.IsZero():
		return ask, false, errdefs.New(errdefs.Denied, "%s: no answer can permit this: the policy hides, masks or protects it", path)
	}
	ask.Path, ask.Permission, ask.Need = path.Text(), d.Permission, a.Need
	if d.Rule != policy.NoRule {
		ask.Rule = vpath.EncodeText(s.policy.Load().Rule(d.Rule).Pattern)
	}
	return ask, false, nil
}

// checkHostRequest reports whether a host may be reached already. Errors: Precondition; Invalid,
// also for more than one name.
func (s *supervisor) checkHostRequest(host string) (permitted bool, err error) {
	if s.egress == nil {
		return false, errdefs.New(errdefs.Precondition, "sandbox %s: runs without a network of named hosts: no host can be asked for", s.record.Name)
	}
	hosts, err := hostlist.Parse([]string{host})
	if err != nil {
		return false, err
	}
	if _, notAddress := netip.ParseAddr(host); notAddress == nil || len(hosts) != 1 || hosts[0] != host+":443" || strings.HasPrefix(host, "*") {
		return false, errdefs.New(errdefs.Invalid, "host %s: want one name in lower case, such as api.example.com, without a port", vpath.Quote(host))
	}
	rules, err := allowlist.Parse(s.hosts.inForce())
	if err != nil {
		return false, err
	}
	_, permitted = allowlist.Find(rules, allowlist.Host(host), 443)
	return permitted, nil
}
