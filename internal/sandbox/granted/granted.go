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
	// source begins the Source of the rule of a grant.
	source = "policy grant"
	// until follows it if the grant ends.
	until = " until "
	// maxGrants bounds the grants with an end, and those of the past.
	maxGrants = 1000
)

// priority is that of the rule of a grant. It puts the rule above those of --write, --read and
// --view, and above weaker grants of the same path: while several are valid, the strongest decides.
func priority(p policy.Permission) int32 { return int32(p) }

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
		Priority: priority(c.Permission), Origin: policy.OriginFlag, Source: source,
	}
	if c.Dir {
		r.Type = policy.Directory
	}
	return r
}

// isGrant reports whether the rule is a grant of a path. Others may have its origin and priority.
func isGrant(r policy.Rule) bool {
	return r.Origin == policy.OriginFlag && r.Priority >= priority(policy.View) && r.Priority <= priority(policy.Write) &&
		(r.Source == source || strings.HasPrefix(r.Source, source+until))
}

// made reports whether the rule is a grant of the path of c.
func (c Change) made(r policy.Rule) bool {
	return isGrant(r) && r.Pattern == string(c.Path) && (r.Type == policy.Directory) == c.Dir
}

// ChangeGrants makes a change at a time and returns the rules with it, nil if there is nothing to
// change: the path is granted so already, for as long at least. Grants of a path add up: a weaker
// one is valid again when a stronger one has ended. name is the sandbox's. Errors: NotFound for a
// grant to revoke; Precondition for a grant of a file that would take what the grant of a directory
// gives; Exhausted for too many with an end; Invalid.
func (l *Paths) ChangeGrants(c Change, rules []policy.Rule, name string, now time.Time) ([]policy.Rule, error) {
	if c.Permission == policy.None {
		return l.revoke(c, rules, name)
	}
	rule, end := c.rule(), time.Time{}
	if err := rule.Check(); err != nil {
		return nil, err
	}
	if c.For > 0 {
		end = now.Add(c.For).UTC()
		rule.Source += until + end.Format(time.RFC3339)
	}
	if slices.ContainsFunc(rules, func(has policy.Rule) bool {
		return c.made(has) && has.Permission >= c.Permission && lasts(l.endOf(has), end)
	}) {
		return nil, nil
	}
	if err := c.takesNothing(rules); err != nil {
		return nil, err
	}
	kept := l.drop(rules, func(has policy.Rule) bool {
		return c.made(has) && has.Permission <= c.Permission && lasts(end, l.endOf(has))
	})
	if c.For > 0 {
		if l.count(false) >= maxGrants {
			return nil, errdefs.New(errdefs.Exhausted, "%s: %s has %w: revoke some, or grant a directory", c.Path, name,
				&errdefs.Limit{Most: maxGrants, Resource: "grants with an end"})
		}
		l.Grants = append(l.Grants, Grant{Rule: rule, Until: end})
	}
	return append(kept, rule), nil
}

// lasts reports whether one end is not before another. Zero means without end.
func lasts(one, other time.Time) bool {
	return one.IsZero() || !other.IsZero() && !one.Before(other)
}

// takesNothing refuses a grant of a file that permits less than the grant of a directory does for
// this file: the rule of the file would decide. Where a rule hides the file from the directory's
// grant, the file's own grant gives something.
func (c Change) takesNothing(rules []policy.Rule) error {
	isAbove := func(r policy.Rule) bool {
		return isGrant(r) && r.Type == policy.Directory && r.Permission > c.Permission && c.Path.Within(vpath.Path(r.Pattern))
	}
	if c.Dir || !slices.ContainsFunc(rules, isAbove) {
		return nil
	}
	p, err := policy.Compile(slices.DeleteFunc(slices.Clone(rules), c.made), policy.Options{})
	if err != nil {
		return err
	}
	d := p.Decide(c.Path)
	if d.Rule == policy.NoRule || d.Permission <= c.Permission || !isGrant(p.Rule(d.Rule)) {
		return nil
	}
	dir := vpath.Path(p.Rule(d.Rule).Pattern)
	return errdefs.New(errdefs.Precondition, "%s: the grant of %s permits %s already, and a grant of %s for a file in it would take that: revoke the grant of %s first, or grant %s",
		c.Path, dir, d.Permission, c.Permission, dir, d.Permission)
}

// drop returns the rules without some, which it also forgets as grants with an end.
func (l *Paths) drop(rules []policy.Rule, is func(policy.Rule) bool) []policy.Rule {
	kept := slices.DeleteFunc(slices.Clone(rules), is)
	l.Grants = slices.DeleteFunc(slices.Clone(l.Grants), func(g Grant) bool { return !g.Over && is(g.Rule) })
	return kept
}

func (l *Paths) revoke(c Change, rules []policy.Rule, name string) ([]policy.Rule, error) {
	if !slices.ContainsFunc(rules, c.made) {
		return nil, errdefs.New(errdefs.NotFound, "%s: not granted to %s by a grant or an answer; look which rule decides%s",
			c.Path, name, errdefs.Command("policy explain --sandbox "+name+" "+policy.QuoteForShell(c.Path.Rel())))
	}
	return l.drop(rules, c.made), nil
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

// count returns how many grants with an end are over, or are not.
func (l *Paths) count(over bool) int {
	n := 0
	for _, g := range l.Grants {
		if g.Over == over {
			n++
		}
	}
	return n
}

// forgetOldest bounds what is remembered of grants that are over.
func (l *Paths) forgetOldest() {
	most := l.count(true) - maxGrants
	l.Grants = slices.DeleteFunc(l.Grants, func(g Grant) bool {
		if !g.Over || most <= 0 {
			return false
		}
		most--
		return true
	})
}

// RememberOnce remembers that a path was opened once to be written, at a time.
func (l *Paths) RememberOnce(p vpath.Path, now time.Time) {
	if !l.WasGranted(p) {
		l.Grants = append(l.Grants, Grant{Rule: Change{Path: p, Permission: policy.Write}.rule(), Until: now.UTC(), Over: true})
		l.forgetOldest()
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
	l.forgetOldest()
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
