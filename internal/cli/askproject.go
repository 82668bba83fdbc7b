package cli

import (
	"context"
	"slices"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/userrules"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// isOfProject reports whether an answer in a sandbox may be for its project: the sandbox is one of
// this host, and no server's.
func isOfProject(sb backend.Sandbox) bool { return sb.HostPrograms && sb.Record.Served == nil }

// answerListed answers the ask with the number that the answer has.
func (e *env) answerListed(ctx context.Context, b backend.Backend, name string, a api.Answer) error {
	asks, err := b.Asks(ctx, name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(asks, func(has api.Ask) bool { return has.ID == a.ID })
	if i < 0 { // the backend has the error
		return b.AnswerAsk(ctx, name, a)
	}
	file, err := e.answerAsk(ctx, b, name, asks[i], a)
	if file != "" {
		e.say("stored for later sandboxes of this project: %s", file)
	}
	return err
}

// answerAsk answers an ask that was shown. It stores an answer for the project in the rules of the
// user, and returns their file. Errors: also those of a file that cannot be read or changed; then
// the ask is not answered.
func (e *env) answerAsk(ctx context.Context, b backend.Backend, name string, shown api.Ask, a api.Answer) (stored record.HostPath, err error) {
	if a.Scope != api.ScopeProject {
		return "", backend.AnswerShown(ctx, b, name, shown, a)
	}
	ctx = context.WithoutCancel(ctx) // the command may end as soon as its ask is answered
	sb, err := b.Sandbox(ctx, name)
	if err == nil && !isOfProject(sb) {
		err = backend.ErrNotOfProject(name)
	}
	if err != nil {
		return "", err
	}
	home, err := e.openHome()
	if err != nil {
		return "", err
	}
	project := string(sb.Record.Source.Path)
	c := userrules.Change{Permission: shown.Need, Host: shown.Host, Reason: "sandbox " + sb.Record.Name + ", " + shown.Operation}
	if shown.Host == "" {
		if c.Path, err = vpath.ParseText(shown.Path); err != nil {
			return "", err
		}
	}
	if err := userrules.Check(home.Dir(), project, c); err != nil {
		return "", err
	}
	if err := backend.AnswerShown(ctx, b, name, shown, a); err != nil {
		return "", err
	}
	file, err := userrules.Add(home, project, c)
	if err != nil {
		return "", errdefs.New(errdefs.KindOf(err), "allowed in this sandbox, and not stored for the project: %w", err)
	}
	return record.HostPath(file), nil
}

// userRules returns the rules of the user for the project at source, and notes its hosts. They
// count beside the project's policy and the default preset. A preset or a file of the command line
// is the whole policy.
func (o *sandboxOptions) userRules(e *env, source string, base []policy.Rule, isChosen bool) ([]policy.Rule, error) {
	home, err := statedir.Path(e.getenv)
	if err != nil || source == "" {
		return nil, nil //nolint:nilerr // without a state directory there are no such rules
	}
	own, err := userrules.Load(home, source)
	if own == nil || err != nil {
		return nil, err
	}
	file, count := record.HostPath(own.File), len(own.Rules)+len(own.Hosts)
	if isChosen || count == 0 {
		if count > 0 {
			e.say("policy: %s does not count, because the command line names the policy", file)
		}
		return nil, nil
	}
	p, err := policy.Compile(base, policy.Options{})
	if err != nil {
		return nil, err
	}
	var rules []policy.Rule
	for _, r := range own.Rules {
		if r.Exact != "" && !p.Decide(r.Exact).Transform.IsZero() {
			e.say("policy: %s: the rule for %s does not count, because the policy masks the file", file, r.Exact)
			continue
		}
		rules = append(rules, r.Rule)
	}
	o.userHosts = own.Hosts
	e.say("policy: with what you allowed in this project: %s", file)
	return rules, nil
}

// addUserHosts lets a sandbox with a network of named hosts reach those that the user has allowed
// in the project. Hosts that it has already stay as they are.
func (o *sandboxOptions) addUserHosts(n *backend.NewSandbox) error {
	if n.Net != record.NetNamed {
		return nil
	}
	missing, err := o.missingHosts(n.AllowNet)
	if err == nil {
		n.AllowNet = append(slices.Clone(n.AllowNet), missing...)
	}
	return err
}

// missingHosts returns the hosts of the user of which has names no rule.
func (o *sandboxOptions) missingHosts(has []string) ([]string, error) {
	known, err := allowlist.Parse(has)
	if err != nil {
		return nil, err
	}
	own, err := allowlist.Parse(o.userHosts)
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(r allowlist.Rule) bool {
		return slices.ContainsFunc(known, func(k allowlist.Rule) bool { return k.Covers(r.Host) })
	})
	return allowlist.Texts(own), nil
}
