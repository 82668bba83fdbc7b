package record

import (
	"errors"
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/scratch"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Ask says that refusals wait until somebody answers.
type Ask struct {
	// Timeout is how long an answer may take. Then it is a denial.
	Timeout Duration `json:"timeout"`
	// Hook is a shell command of the caller's, which answers; "" for none.
	Hook string `json:"hook,omitempty"`
}

const (
	// grantPriority puts the rule of a grant above those of --write, --read and --view.
	grantPriority = 1
	// maxGrants bounds the grants with an end, also those of the past.
	maxGrants = 1000
)

// Grant is a rule of a sandbox that ends, or has ended.
type Grant struct {
	Rule  policy.Rule `json:"rule"`
	Until time.Time   `json:"until"`
	// Over says that it has ended, and was a grant to write: what was written stays to be applied.
	Over bool `json:"over,omitempty"`
}

// A GrantChange grants a path, or with the permission none revokes what was granted of it.
type GrantChange struct {
	Path       vpath.Path
	Dir        bool // with all below it
	Permission policy.Permission
	For        time.Duration // 0: until it is revoked
	Reason     string        // for the audit log
}

func (c GrantChange) pattern() policy.Rule {
	r := policy.Rule{
		Pattern: string(c.Path), Permission: c.Permission, Type: policy.File,
		Priority: grantPriority, Origin: policy.OriginFlag, Source: "policy grant",
	}
	if c.Dir {
		r.Type = policy.Directory
	}
	return r
}

// isGrantOf reports whether the rule is a grant of the path of c.
func (c GrantChange) isGrantOf(r policy.Rule) bool {
	return r.Origin == policy.OriginFlag && r.Priority == grantPriority && r.Pattern == string(c.Path) &&
		(r.Type == policy.Directory) == c.Dir
}

// GrantPath stores a grant of a path, or its end, and records that in the audit log. The caller
// informs a running supervisor. Errors: NotFound for a grant to revoke; Invalid; Precondition.
func (s *Sandbox) GrantPath(c GrantChange) error {
	log, err := s.OpenLog()
	if err != nil {
		return err
	}
	err = s.Update(func(r *Record) error {
		changed, err := r.grant(c, time.Now())
		if err == nil && changed {
			err = scratch.StoreIn(s.Dir()).CheckChange(r.Rules, r.Scratch)
		}
		if err == nil && changed {
			err = log.Append(r.policyEvent(c.Reason))
		}
		return err
	})
	return errors.Join(err, log.Close())
}

func (r *Record) policyEvent(reason string) audit.PolicyChanged {
	return audit.PolicyChanged{Reason: reason, Preset: r.PolicyNote, Rules: AuditRules(r.Rules)}
}

// grant changes the rules. It reports false if there is nothing to change: the path has the
// permission, for as long at least.
func (r *Record) grant(c GrantChange, now time.Time) (changed bool, err error) {
	if c.Permission == policy.None {
		return true, r.revoke(c)
	}
	rule := c.pattern()
	if err := rule.Check(); err != nil {
		return false, err
	}
	if c.For > 0 {
		until := now.Add(c.For).UTC().Truncate(time.Second)
		for _, g := range r.Grants {
			if !g.Over && c.isGrantOf(g.Rule) && g.Rule.Permission >= c.Permission && !g.Until.Before(until) {
				return false, nil
			}
		}
		rule.Source += " until " + until.Format(time.RFC3339)
		r.keepGrant(Grant{Rule: rule, Until: until})
	}
	has := func(old policy.Rule) bool {
		return c.isGrantOf(old) && old.Permission >= c.Permission && r.endOf(old).IsZero()
	}
	if slices.ContainsFunc(r.Rules, has) {
		return false, nil // without an end
	}
	rules := slices.DeleteFunc(slices.Clone(r.Rules), func(old policy.Rule) bool { return c.isGrantOf(old) && old.Permission <= c.Permission })
	r.SetRules(append(rules, rule), r.PolicyNote)
	return true, nil
}

// RememberOnce stores that a path was opened once to be written, so that what was written may be
// applied.
func (s *Sandbox) RememberOnce(p vpath.Path) error {
	if r := s.Record(); r.WasGranted(p) {
		return nil
	}
	return s.Update(func(r *Record) error {
		rule := GrantChange{Path: p, Permission: policy.Write}.pattern()
		if !r.WasGranted(p) {
			r.keepGrant(Grant{Rule: rule, Until: time.Now().UTC().Truncate(time.Second), Over: true})
		}
		return nil
	})
}

// endOf is when a rule ends, zero if it has no end.
func (r *Record) endOf(rule policy.Rule) time.Time {
	for _, g := range r.Grants {
		if g.Rule == rule {
			return g.Until
		}
	}
	return time.Time{}
}

// keepGrant remembers a grant that ends. The oldest of the past is forgotten if they are many.
func (r *Record) keepGrant(g Grant) {
	if len(r.Grants) >= maxGrants {
		r.Grants = slices.Delete(r.Grants, 0, 1)
	}
	r.Grants = append(r.Grants, g)
}

// revoke takes back what was granted of a path. Errors: NotFound.
func (r *Record) revoke(c GrantChange) error {
	rules := slices.DeleteFunc(slices.Clone(r.Rules), c.isGrantOf)
	if len(rules) == len(r.Rules) {
		return errdefs.New(errdefs.NotFound, "%s: not granted to %s by policy grant or by an answer; agentfense policy explain %s %s shows which rule decides",
			c.Path, r.Name, r.Name, policy.QuoteForShell(c.Path.Rel()))
	}
	r.SetRules(rules, r.PolicyNote)
	r.Grants = slices.DeleteFunc(r.Grants, func(g Grant) bool { return c.isGrantOf(g.Rule) })
	return nil
}

// EndGrants removes the rules of the grants that have ended at a time, and reports whether there
// are any.
func (r *Record) EndGrants(now time.Time) (ended bool) {
	var left []Grant
	for _, g := range r.Grants {
		if g.Over || now.Before(g.Until) {
			left = append(left, g)
			continue
		}
		if i := slices.Index(r.Rules, g.Rule); i >= 0 {
			r.SetRules(slices.Delete(slices.Clone(r.Rules), i, i+1), r.PolicyNote)
			ended = true
		}
		if g.Rule.Permission == policy.Write {
			g.Over = true
			left = append(left, g)
		}
	}
	r.Grants = left
	return ended
}

// NextGrantEnd returns when the first grant ends, which may be in the past.
func (r *Record) NextGrantEnd() (end time.Time, ends bool) {
	for _, g := range r.Grants {
		if !g.Over && (!ends || g.Until.Before(end)) {
			end, ends = g.Until, true
		}
	}
	return end, ends
}

// WasGranted reports whether a grant to write the path has ended. What it wrote may be applied.
func (r *Record) WasGranted(p vpath.Path) bool {
	return slices.ContainsFunc(r.Grants, func(g Grant) bool {
		at, err := vpath.Parse(g.Rule.Pattern)
		return err == nil && g.Over && (p == at || g.Rule.Type == policy.Directory && p.Within(at))
	})
}

// EndGrants stores the end of grants that have ended, and records it in the audit log. The caller
// informs a running supervisor.
func (s *Sandbox) EndGrants() error {
	return s.Update(func(*Record) error { return nil })
}

// HasEndedGrants reports whether grants have ended that the stored record still has.
func (r *Record) HasEndedGrants() bool { return r.grantsEnded }

// checkGrants refuses what GrantPath never stores. Errors: Precondition.
func (r *Record) checkGrants() error {
	if r.Ask != nil && r.Ask.Timeout <= 0 {
		return errdefs.New(errdefs.Precondition, "ask has no time-out")
	}
	for _, g := range r.Grants {
		if err := g.Rule.Check(); err != nil || g.Until.IsZero() {
			return errdefs.New(errdefs.Precondition, "grants are malformed: %w", err)
		}
	}
	return nil
}
