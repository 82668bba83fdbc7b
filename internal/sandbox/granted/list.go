package granted

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Path is a path that is granted, beside the other rules.
type Path struct {
	Path       vpath.Path
	Dir        bool // with all below it
	Permission policy.Permission
	Until      time.Time // zero: it has no end
}

// ListGrants returns the grants among the rules.
func (l *Paths) ListGrants(rules []policy.Rule) []Path {
	var all []Path
	for _, rule := range rules {
		if !isGrant(rule) {
			continue
		}
		if p, err := vpath.Parse(rule.Pattern); err == nil {
			all = append(all, Path{Path: p, Dir: rule.Type == policy.Directory, Permission: rule.Permission, Until: l.endOf(rule)})
		}
	}
	return all
}

// AddGrants returns the rules with those of grants, as ListGrants returns them.
func (l *Paths) AddGrants(all []Path, rules []policy.Rule) []policy.Rule {
	for _, g := range all {
		rule := Change{Path: g.Path, Dir: g.Dir, Permission: g.Permission}.rule()
		if !g.Until.IsZero() {
			l.Grants = append(l.Grants, Grant{Rule: rule, Until: g.Until})
		}
		rules = append(rules, rule)
	}
	return rules
}
