// Package granted has the paths that a person grants to a sandbox, also for a time: their rules,
// and when these end.
package granted

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

const (
	// priority puts the rule of a grant above those of --write, --read and --view.
	priority = 1
	// source begins the Source of the rule of a grant.
	source = "policy grant"
	// maxGrants bounds the grants with an end, also those of the past.
	maxGrants = 1000
)

// Paths are the grants of a sandbox that have an end, as its record has them. The rules of those
// that last are among the record's. Its zero value is empty.
type Paths struct {
	Grants []Grant `json:"grants,omitempty"`
	// GrantsEnded says that rules had ended when the record was read, and were dropped.
	GrantsEnded bool `json:"-"`
	// InMounts are paths of mounts that were opened once to be written, by the name of the mount.
	InMounts map[string][]Grant `json:"grants_in_mounts,omitempty"`
}

// Grant is a rule that ends, or has ended.
type Grant struct {
	Rule  policy.Rule `json:"rule"`
	Until time.Time   `json:"until"`
	// Over says that it has ended, and was a grant to write: what was written stays to be applied.
	Over bool `json:"over,omitempty"`
}

// A Change grants a path, or with the permission none revokes what was granted of it.
type Change struct {
	Path       vpath.Path
	Dir        bool // with all below it
	Permission policy.Permission
	For        time.Duration // 0: until it is revoked
	Reason     string        // for the audit log
}

func (c Change) rule() policy.Rule {
	r := policy.Rule{
		Pattern: string(c.Path), Permission: c.Permission, Type: policy.File,
		Priority: priority, Origin: policy.OriginFlag, Source: source,
	}
	if c.Dir {
		r.Type = policy.Directory
	}
	return r
}

// isGrant reports whether the rule is a grant of a path. Others may have its origin and priority.
func isGrant(r policy.Rule) bool {
	return r.Origin == policy.OriginFlag && r.Priority == priority && strings.HasPrefix(r.Source, source)
}

// made reports whether the rule is a grant of the path of c.
func (c Change) made(r policy.Rule) bool {
	return isGrant(r) && r.Pattern == string(c.Path) && (r.Type == policy.Directory) == c.Dir
}

// ChangeGrants makes a change at a time and returns the rules with it, nil if there is nothing to
// change: the path is granted so already, for as long at least. name is the sandbox's. Errors:
// NotFound for a grant to revoke; Invalid.
func (l *Paths) ChangeGrants(c Change, rules []policy.Rule, name string, now time.Time) ([]policy.Rule, error) {
	if c.Permission == policy.None {
		return l.revoke(c, rules, name)
	}
	rule := c.rule()
	if err := rule.Check(); err != nil {
		return nil, err
	}
	until := now.Add(c.For).UTC()
	if c.For > 0 {
		rule.Source += " until " + until.Format(time.RFC3339)
	}
	lasts := func(has policy.Rule) bool {
		end := l.endOf(has)
		return c.made(has) && has.Permission >= c.Permission && (end.IsZero() || c.For > 0 && !end.Before(until))
	}
	if slices.ContainsFunc(rules, lasts) {
		return nil, nil
	}
	isLess := func(has policy.Rule) bool { return c.made(has) && has.Permission <= c.Permission }
	rules = append(slices.DeleteFunc(slices.Clone(rules), isLess), rule)
	l.Grants = slices.DeleteFunc(l.Grants, func(g Grant) bool { return !g.Over && isLess(g.Rule) })
	if c.For > 0 {
		l.keep(Grant{Rule: rule, Until: until})
	}
	return rules, nil
}

func (l *Paths) revoke(c Change, rules []policy.Rule, name string) ([]policy.Rule, error) {
	left := slices.DeleteFunc(slices.Clone(rules), c.made)
	if len(left) == len(rules) {
		return nil, errdefs.New(errdefs.NotFound, "%s: not granted to %s by policy grant or by an answer; agentfense policy explain --sandbox %s %s shows which rule decides",
			c.Path, name, name, policy.QuoteForShell(c.Path.Rel()))
	}
	l.Grants = slices.DeleteFunc(l.Grants, func(g Grant) bool { return !g.Over && c.made(g.Rule) })
	return left, nil
}

// endOf is when a rule ends, zero if it has no end.
func (l *Paths) endOf(rule policy.Rule) time.Time {
	for _, g := range l.Grants {
		if g.Rule == rule {
			return g.Until
		}
	}
	return time.Time{}
}

// keep remembers a grant that ends. The oldest is forgotten if they are many.
func (l *Paths) keep(g Grant) {
	if len(l.Grants) >= maxGrants {
		l.Grants = slices.Delete(l.Grants, 0, 1)
	}
	l.Grants = append(l.Grants, g)
}

// RememberOnce remembers that a path was opened once to be written, at a time.
func (l *Paths) RememberOnce(p vpath.Path, now time.Time) {
	if !l.WasGranted(p) {
		l.keep(Grant{Rule: Change{Path: p, Permission: policy.Write}.rule(), Until: now.UTC(), Over: true})
	}
}

// RememberOnceIn is RememberOnce for a path of a mount; "" is the workspace.
func (l *Paths) RememberOnceIn(mount string, p vpath.Path, now time.Time) {
	if mount == "" {
		l.RememberOnce(p, now)
		return
	}
	of := l.OfMount(mount)
	of.RememberOnce(p, now)
	if l.InMounts == nil {
		l.InMounts = map[string][]Grant{}
	}
	l.InMounts[mount] = of.Grants
}

// OfMount returns the grants of paths of a mount.
func (l *Paths) OfMount(mount string) Paths { return Paths{Grants: slices.Clone(l.InMounts[mount])} }

// WasGranted reports whether a grant to write the path has ended. What it wrote may be applied.
func (l *Paths) WasGranted(p vpath.Path) bool {
	return slices.ContainsFunc(l.Grants, func(g Grant) bool {
		at, err := vpath.Parse(g.Rule.Pattern)
		return err == nil && g.Over && (p == at || g.Rule.Type == policy.Directory && p.Within(at))
	})
}

// DropEndedGrants returns the rules without those that have ended at a time, and sets GrantsEnded
// if there are any.
func (l *Paths) DropEndedGrants(rules []policy.Rule, now time.Time) []policy.Rule {
	var left []Grant
	for _, g := range l.Grants {
		if g.Over || now.Before(g.Until) {
			left = append(left, g)
			continue
		}
		if i := slices.Index(rules, g.Rule); i >= 0 {
			rules = slices.Delete(slices.Clone(rules), i, i+1)
			l.GrantsEnded = true
		}
		if g.Rule.Permission == policy.Write {
			g.Over = true
			left = append(left, g)
		}
	}
	l.Grants = left
	return rules
}

// NextGrantEnd returns when the first grant ends, which may be in the past.
func (l *Paths) NextGrantEnd() (end time.Time, ends bool) {
	for _, g := range l.Grants {
		if !g.Over && (!ends || g.Until.Before(end)) {
			end, ends = g.Until, true
		}
	}
	return end, ends
}

// CheckGrants refuses what ChangeGrants never makes. Errors: Precondition.
func (l *Paths) CheckGrants() error {
	for _, g := range slices.Concat(l.Grants, slices.Concat(slices.Collect(maps.Values(l.InMounts))...)) {
		if err := g.Rule.Check(); err != nil {
			return errdefs.New(errdefs.Precondition, "a grant is malformed: %w", err)
		}
		if g.Until.IsZero() {
			return errdefs.New(errdefs.Precondition, "a grant has no end")
		}
	}
	return nil
}

// CloneGrants returns a copy that shares nothing.
func (l *Paths) CloneGrants() Paths {
	c := Paths{Grants: slices.Clone(l.Grants), GrantsEnded: l.GrantsEnded, InMounts: maps.Clone(l.InMounts)}
	for mount, grants := range c.InMounts {
		c.InMounts[mount] = slices.Clone(grants)
	}
	return c
}
