package attest

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// logCheck looks for what the audit log has and a statement should have.
type logCheck struct {
	st       *Statement
	policies [][]audit.Rule
	network  EarlierNetwork // at any time
	allowed  []string       // rules of hosts, also of the addresses of secrets
	commits  bool           // the log has the commit of the statement
}

// CheckLog checks the audit log of the sandbox, with the files to which earlier records were moved:
// their chain, that it has the record that the statement names, and that until then it has no
// policy, mount, host and contributor that the statement does not have, and has the commit that the
// statement has. Errors: Invalid if a check fails, also if archived records are missing; NotFound,
// Denied.
func (st *Statement) CheckLog(path string, archives ...string) (audit.Summary, error) {
	head, err := audit.ParseHead(st.Predicate.Audit.Head)
	if err != nil {
		return audit.Summary{}, errdefs.New(errdefs.Invalid, "head of the audit log: %w", err)
	}
	parts, err := audit.Order(path, archives)
	if err != nil {
		return audit.Summary{}, err
	}
	summary, err := audit.VerifyParts(parts, head)
	switch {
	case err != nil:
		return summary, err
	case summary.Archived > 0:
		return summary, errdefs.New(errdefs.Invalid, "audit log %s: its records up to %d are in an archive: give that, too (--archive FILE)", nameOf(parts[0]), summary.Archived)
	case string(summary.ID) != st.Predicate.Sandbox.ID:
		return summary, errdefs.New(errdefs.Invalid, "audit log %s: it is of another sandbox", nameOf(path))
	}
	c, err := st.newLogCheck()
	if err != nil {
		return summary, err
	}
	if err := c.read(parts, head.Seq); err != nil {
		return summary, err
	}
	if st.Predicate.Commit != nil && !c.commits {
		return summary, errdefs.New(errdefs.Invalid, "audit log %s: it has no record of the commit %s", nameOf(path), st.Predicate.Commit.ID)
	}
	return summary, nil
}

// checkRecord checks before an apply that the record of the sandbox, of which a statement is made,
// has what its audit log has. That of a sandbox that an earlier version made may lack something.
// Errors: Invalid, also if the log is damaged.
func checkRecord(s *record.Sandbox) error {
	log, err := audit.Verify(s.AuditPath())
	if err != nil {
		return err
	}
	st, err := New(s, nil, &apply.Result{}, &log, About{})
	if err != nil {
		return err
	}
	c, err := st.newLogCheck()
	if err != nil {
		return err
	}
	return c.read([]string{s.AuditPath()}, log.Head.Seq)
}

func (st *Statement) newLogCheck() (*logCheck, error) {
	c := &logCheck{st: st, network: st.Predicate.Network.ever()}
	var err error
	if c.policies, err = loggedPolicies(st.Predicate.Policies); err != nil {
		return nil, err
	}
	c.allowed = c.network.Allow
	for _, s := range c.network.Secrets {
		c.allowed = append(slices.Clip(c.allowed), hostlist.InsideRules(s.Name, len(s.Hosts))...)
	}
	return c, nil
}

// read checks the records of the parts, up to one. Errors: Invalid if the statement lacks
// something.
func (c *logCheck) read(parts []string, last uint64) error {
	for _, part := range parts {
		err := audit.Read(part, func(r audit.Record) error {
			if r.Seq > last {
				return nil
			}
			if what := c.lacks(r.Event); what != "" {
				return errdefs.New(errdefs.Invalid, "audit log %s: record %d %s", nameOf(part), r.Seq, what)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lacks says what a record of the audit log has that the statement should have, "" for nothing.
func (c *logCheck) lacks(e audit.Event) string {
	switch e := e.(type) {
	case audit.SandboxCreated:
		return firstOf(c.lacksRules(e.Rules, e.RulesOmitted), c.lacksMode(e.Net), c.lacksMounts(e.Mounts))
	case audit.PolicyChanged:
		return c.lacksRules(e.Rules, e.RulesOmitted)
	case audit.SandboxStarted:
		mode := ""
		for _, word := range e.Enforced {
			if net, is := strings.CutPrefix(word, audit.EnforcedNet); is {
				mode = firstOf(mode, c.lacksMode(net))
			}
		}
		return firstOf(mode, c.lacksHosts(e.AllowNet...), c.lacksPorts(e.Published), c.lacksMounts(e.Mounts))
	case audit.HostsChanged:
		all := e.Granted
		for _, a := range e.AllowNet {
			all = append(slices.Clip(all), a.Host)
		}
		return c.lacksHosts(all...)
	case audit.NetworkAllowed:
		return c.lacksHosts(e.Rule)
	case audit.Applied:
		commit := c.st.Predicate.Commit
		c.commits = c.commits || commit != nil && e.Commit == commit.ID && e.Mount == c.st.Predicate.Mount
		return ""
	}
	if !c.st.hasContributor(e) {
		return "brings changes of a sandbox or file that the statement does not name"
	}
	return ""
}

// nameOf names a file without its directory, which clients of a server may not know.
func nameOf(file string) string { return vpath.Escape(filepath.Base(file)) }

// firstOf returns the first text that is not empty.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

func (c *logCheck) lacksRules(rules []audit.Rule, omitted int64) string {
	if slices.ContainsFunc(c.policies, func(k []audit.Rule) bool { return isLogged(k, rules, omitted) }) {
		return ""
	}
	return "has a policy that the statement does not have"
}

func (c *logCheck) lacksMode(net string) string {
	if slices.Contains(c.network.Modes, net) {
		return ""
	}
	return "has a network that the statement does not have"
}

func (c *logCheck) lacksHosts(rules ...audit.Text) string {
	for _, rule := range rules {
		if !slices.Contains(c.allowed, string(rule)) {
			return "has an allowed host that the statement does not have"
		}
	}
	return ""
}

func (c *logCheck) lacksPorts(ports []audit.PublishedPort) string {
	for _, p := range ports {
		if !slices.Contains(c.network.Publish, p.Port) {
			return "has a published port that the statement does not have"
		}
	}
	return ""
}

// lacksMounts compares the names, modes and policies of mounts, which are what a statement has.
func (c *logCheck) lacksMounts(logged []audit.Mount) string {
	for _, m := range logged {
		isIt := func(has Mount) bool {
			if has.Name != m.Name || has.Mode != m.Mode {
				return false
			}
			policies, err := loggedPolicies(has.Policies)
			hasSum := slices.ContainsFunc(has.Policies, func(p Policy) bool { return p.SHA256 == m.RulesSHA256 })
			hasRules := slices.ContainsFunc(policies, func(k []audit.Rule) bool { return isLogged(k, m.Rules, 0) })
			return err == nil && (m.RulesSHA256 == "" || hasSum) && (len(m.Rules) == 0 || hasRules)
		}
		if !slices.ContainsFunc(c.st.mounts(), isIt) {
			return "has a mount that the statement does not have"
		}
	}
	return ""
}

// loggedPolicies returns policies as the audit log writes them.
func loggedPolicies(list []Policy) ([][]audit.Rule, error) {
	var known [][]audit.Rule
	for i := range list {
		rules, err := list[i].decode()
		if err != nil {
			return nil, err
		}
		known = append(known, record.AuditRules(rules))
	}
	return known, nil
}

// isLogged reports whether the log has the rules in this form: as texts, which may be cut.
func isLogged(rules, logged []audit.Rule, omitted int64) bool {
	if int64(len(rules)) != int64(len(logged))+omitted {
		return false
	}
	return slices.EqualFunc(rules[:len(logged)], logged, func(a, b audit.Rule) bool {
		return a.Permission == b.Permission && a.Type == b.Type && a.Priority == b.Priority && isSameText(a.Pattern, b.Pattern)
	})
}

func isSameText(full, logged audit.Text) bool {
	a, err := full.MarshalJSON()
	b, err2 := logged.MarshalJSON()
	return err == nil && err2 == nil && slices.Equal(a, b)
}
