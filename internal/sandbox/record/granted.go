package record

import (
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// grantSource begins the Source of the rules of grants.
const grantSource = "policy grant"

// GrantedPath is a path of the workspace that was granted, beside the other rules.
type GrantedPath struct {
	Path       vpath.Path
	Dir        bool // with all below it
	Permission policy.Permission
	Until      time.Time // zero: it has no end
}

// GrantedPaths returns the grants among the rules.
func (r *Record) GrantedPaths() []GrantedPath {
	var all []GrantedPath
	for _, rule := range r.Rules {
		if rule.Origin != policy.OriginFlag || rule.Priority != grantPriority || !strings.HasPrefix(rule.Source, grantSource) {
			continue
		}
		if p, err := vpath.Parse(rule.Pattern); err == nil {
			all = append(all, GrantedPath{Path: p, Dir: rule.Type == policy.Directory, Permission: rule.Permission, Until: r.endOf(rule)})
		}
	}
	return all
}

// AddGrantedPaths adds grants to the rules, as GrantedPaths returns them.
func (r *Record) AddGrantedPaths(all []GrantedPath) {
	for _, g := range all {
		rule := GrantChange{Path: g.Path, Dir: g.Dir, Permission: g.Permission}.pattern()
		if !g.Until.IsZero() {
			r.Grants = append(r.Grants, Grant{Rule: rule, Until: g.Until})
		}
		r.Rules = append(r.Rules, rule)
	}
}
