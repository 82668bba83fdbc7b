package supervise

import (
	"context"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/asking"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// beginAsking makes the table of asks, if refusals are to wait for an answer.
func (s *supervisor) beginAsking(context.Context) error {
	if s.record.Ask == nil {
		return nil
	}
	s.asks = asking.New(asking.Options{
		Timeout: time.Duration(s.record.Ask.Timeout),
		Apply:   s.applyAnswer,
		Record:  func(ev audit.Event) { s.append(ev) },
	})
	return nil
}

// asker is what the view calls for a refusal; nil if it is not to ask.
func (s *supervisor) asker() func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
	if s.asks == nil {
		return nil
	}
	return func(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
		return s.askForPath("", s.rules(), q, withdrawn)
	}
}

// askerIn is asker for a mount.
func (s *supervisor) askerIn(m *mountView) func(fusefs.Question, <-chan struct{}) fusefs.Verdict {
	if s.asks == nil {
		return nil
	}
	return func(q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
		if q.Need == policy.Write && !m.writable {
			return fusefs.Refuse // there is nowhere to write
		}
		return s.askForPath(m.name, m.Policy.Rules(), q, withdrawn)
	}
}

// askForPath waits for the answer to a refusal in the workspace, or in a mount.
func (s *supervisor) askForPath(mount string, rules []policy.Rule, q fusefs.Question, withdrawn <-chan struct{}) fusefs.Verdict {
	a := api.Ask{
		Mount: mount, Path: q.Path.Text(), Permission: q.Permission, Need: q.Need, Operation: q.Operation,
		PID: q.PID, Program: vpath.EncodeText(q.Program),
	}
	if q.Rule != policy.NoRule && q.Rule < len(rules) {
		a.Rule = vpath.EncodeText(rules[q.Rule].Pattern)
	}
	if x, _ := q.Owner.(*execution); x != nil {
		a.Exec = x.id
	}
	switch r := s.asks.Ask(a, withdrawn); {
	case r.Withdrawn:
		return fusefs.Withdrawn
	case !r.Allowed:
		return fusefs.Refuse
	case r.Scope == api.ScopeOnce:
		return fusefs.AllowOnce
	}
	return fusefs.Reconsider
}

// askForHost waits for the answer to the refusal of a host, and reports whether it is allowed now.
func (s *supervisor) askForHost(host string, withdrawn <-chan struct{}) bool {
	return s.asks.Ask(api.Ask{Host: host, Operation: "connect"}, withdrawn).Allowed
}

// applyAnswer carries out what somebody allowed. The record is written first, then it is put into
// force.
func (s *supervisor) applyAnswer(a api.Ask, scope api.Scope) error {
	if a.Host != "" {
		return s.allowHost(a.Host, scope)
	}
	box, err := s.home.Open(s.box.Name())
	if err != nil {
		return err
	}
	path, err := vpath.ParseText(a.Path)
	if err != nil {
		return err
	}
	if a.Mount != "" {
		switch {
		case scope != api.ScopeOnce:
			return errdefs.New(errdefs.Precondition, "%s:%s: an answer in a mount counts once, because the policy of a mount does not change while the sandbox runs", a.Mount, path)
		case a.Need == policy.Write:
			return box.RememberOnce(a.Mount, path)
		}
		return nil
	}
	switch d := s.policy.Load().Decide(path); {
	case d.Permission == policy.None || !d.Transform.IsZero(): // the policy was replaced meanwhile
		return errdefs.New(errdefs.Denied, "%s: the policy hides or masks it by now", path)
	case scope != api.ScopeOnce || a.Requested:
		g := granted.Change{Path: path, Permission: a.Need, Reason: "an answer to ask " + a.ID}
		if scope == api.ScopeOnce {
			g.For = api.OnceTime
		}
		err = box.GrantPath(g)
		if err == nil {
			err = s.takeGrants()
		}
	case a.Need == policy.Write:
		err = box.RememberOnce("", path)
	}
	return err
}

func (s *supervisor) allowHost(host string, scope api.Scope) error {
	hosts, err := hostlist.Parse([]string{host})
	if err != nil {
		return err
	}
	c := hostlist.Change{Grant: hosts, Reason: "an answer"}
	if scope == api.ScopeOnce {
		c.For = api.OnceTime
	}
	box, err := s.home.Open(s.box.Name())
	if err == nil {
		err = box.ChangeHosts(c)
	}
	if err != nil {
		return err
	}
	return s.takeHosts()
}

// answerAsks lists what waits, or answers it, or takes grants from the record.
func (s *supervisor) answerAsks(r api.Request) (api.Reply, error) {
	switch {
	case r.Op == api.OpGrants:
		return api.Reply{OK: true}, s.takeGrants()
	case s.asks == nil:
		return api.Reply{}, errNotAsking(s.record.Name)
	case r.Op == api.OpAsks:
		return api.Reply{OK: true, Asks: s.asks.List()}, nil
	case r.Answer == nil:
		return api.Reply{}, errdefs.New(errdefs.Invalid, "control: answer without an answer")
	}
	return api.Reply{OK: true}, s.asks.Answer(*r.Answer)
}

func errNotAsking(name string) error {
	return errdefs.New(errdefs.Precondition, "sandbox %s: does not ask: it was started without --ask", name)
}

// handleAskWatch tells the client at c what waits for an answer until it leaves. It is no reason
// to stay.
func (s *supervisor) handleAskWatch(ctx context.Context, c api.Conn) {
	s.release()
	defer s.holdAgain()
	if s.asks == nil {
		s.warn("control: refusal not delivered", c.Send(api.Reply{Error: api.FailureOf(errNotAsking(s.record.Name))}))
		return
	}
	changed, stop := s.asks.Watch()
	defer stop()
	ctx, cancel := untilClientLeaves(ctx, c)
	defer cancel()
	err := c.Send(api.Reply{OK: true})
	for err == nil {
		err = c.Send(api.Reply{OK: true, Asks: s.asks.List()})
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-s.stopping:
			return
		}
	}
}

// endAsking denies what waits.
func (s *supervisor) endAsking() {
	if s.asks != nil {
		s.asks.Close()
	}
}
