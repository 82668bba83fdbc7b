package policy_test

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// reference is the policy language as its specification reads: all rules are
// tried at every path, doublestar matches the globs, and ranks are compared
// field by field. It knows neither trie nor index, no braces and no broken
// UTF-8 in patterns.
type reference struct {
	rules    []refRule
	reserved []vpath.Path
}

type refRule struct {
	policy.Rule
	kind      policy.PatternType
	glob      string // relative to the root
	prefix    int
	wildcards int
	exact     vpath.Path // the path that a widening flag of type file names
}

// refWinner is the winning rule at a path; class 0 is no rule.
type refWinner struct {
	class      int // 1 flag, 2 rule, 3 exact flag, 4 hide, 5 reserved
	rank       [4]int
	permission policy.Permission
	transform  policy.Transform
	rule       int
}

func newReference(rules []policy.Rule, reserved []vpath.Path) reference {
	ref := reference{reserved: reserved}
	for _, r := range rules {
		ref.rules = append(ref.rules, newRefRule(r))
	}
	return ref
}

func newRefRule(r policy.Rule) refRule {
	out := refRule{Rule: r, kind: r.Type}
	text := r.Pattern
	explicit := r.Type == policy.File || r.Type == policy.Directory
	if r.Type == policy.Auto {
		switch {
		case strings.ContainsAny(text, `*?[{\`):
			out.kind = policy.Glob
		case strings.HasSuffix(text, "/"):
			out.kind = policy.Directory
		default:
			out.kind = policy.File
		}
	}
	anchored := explicit || strings.Contains(text[:len(text)-1], "/")
	var parts []string
	for e := range strings.SplitSeq(text, "/") {
		if e != "" && e != "." {
			parts = append(parts, e)
		}
	}
	if out.kind == policy.File && len(parts) == 1 {
		out.exact = vpath.Root.Child(parts[0])
	} else if out.kind == policy.File {
		out.exact = vpath.Path("/" + strings.Join(parts, "/"))
	}
	if !anchored && len(parts) > 0 {
		parts = append([]string{"**"}, parts...)
	}
	if out.kind == policy.Glob && strings.HasSuffix(text, "/") {
		parts = append(parts, "**")
	}
	parts = slices.CompactFunc(parts, func(a, b string) bool { return a == "**" && b == "**" })
	out.measure(parts, anchored)
	out.glob = strings.Join(parts, "/")
	if out.kind == policy.Directory {
		out.glob = strings.TrimPrefix(out.glob+"/**", "/")
	}
	return out
}

func (r *refRule) measure(parts []string, anchored bool) {
	whole := "/" + strings.Join(parts, "/")
	if r.kind != policy.Glob {
		r.prefix = len(whole)
		if !anchored {
			r.prefix, r.wildcards = 1, 1
		}
		return
	}
	r.prefix = len(whole)
	if i := strings.IndexAny(whole, "*?["); i >= 0 {
		r.prefix = i
		if rest := whole[i:]; whole[i-1] == '/' && (rest == "**" || rest == "**/*") {
			r.wildcards = 1000 // everything below the prefix: the least specific
		}
	}
	for _, e := range parts {
		if e == "**" {
			r.wildcards++
		} else {
			r.wildcards += strings.Count(e, "*") + strings.Count(e, "?") + strings.Count(e, "[")
		}
	}
}

func (r *refRule) matches(p vpath.Path) bool {
	if p.IsRoot() {
		return r.glob == "**/*" || r.glob == "**" || r.glob == ""
	}
	name := strings.TrimPrefix(string(p), "/")
	// doublestar's a*/** does not match a, though its a/** does.
	if above, ok := strings.CutSuffix(r.glob, "/**"); ok && doublestar.MatchUnvalidated(above, name) {
		return true
	}
	return doublestar.MatchUnvalidated(r.glob, name)
}

func compareWinners(a, b refWinner) int {
	return cmp.Or(
		cmp.Compare(a.class, b.class),
		slices.Compare(a.rank[:], b.rank[:]),
		cmp.Compare(b.permission, a.permission), // the stricter is higher
		cmp.Compare(a.transform.Redact, b.transform.Redact),
		cmp.Compare(a.transform.Substitute, b.transform.Substitute), // there is one only
	)
}

// candidates returns the best rule at p of each class.
func (ref reference) candidates(p vpath.Path) [6]refWinner {
	var best [6]refWinner
	for i, r := range ref.rules {
		if !r.matches(p) {
			continue
		}
		class := 2
		switch {
		case r.Origin == policy.OriginHide:
			class = 4
		case r.Origin == policy.OriginFlag && r.exact == p:
			class = 3
		case r.Origin == policy.OriginFlag:
			class = 1
		}
		w := refWinner{
			class: class, permission: r.Permission, transform: r.Transform, rule: i,
			rank: [4]int{int(r.Priority), int(r.kind), r.prefix, -r.wildcards},
		}
		if best[class].class == 0 || compareWinners(w, best[class]) > 0 {
			best[class] = w
		}
	}
	for _, q := range ref.reserved {
		if p.Within(q) {
			best[5] = refWinner{class: 5, permission: policy.None, rule: policy.NoRule}
		}
	}
	return best
}

// own is the winner at p without inheritance.
func (ref reference) own(p vpath.Path) refWinner {
	best := ref.candidates(p)
	for class := 5; class >= 3; class-- {
		if best[class].class != 0 {
			return best[class]
		}
	}
	rule, flag := best[2], best[1]
	switch {
	case rule.class == 0:
		return flag
	case flag.class == 0 || rule.permission == policy.None:
		return rule
	}
	// The flag takes over the rank of the rule that it replaces. The rank's last
	// part, how strict the rule was, cannot matter: rules of equal rank that are
	// stricter would have won.
	return refWinner{class: rule.class, rank: rule.rank, permission: flag.permission, rule: flag.rule}
}

func (ref reference) decide(p vpath.Path) (policy.Permission, policy.Transform) {
	own := ref.own(p)
	if own.class == 0 || own.permission == policy.None {
		return policy.None, policy.Transform{}
	}
	for ancestor := range p.Ancestors() {
		above := ref.own(ancestor)
		if above.class != 0 && above.permission == policy.None && compareWinners(above, own) > 0 {
			return policy.None, policy.Transform{}
		}
	}
	if p == policy.ProjectFile && own.permission == policy.Write {
		return policy.Read, policy.Transform{}
	}
	return own.permission, own.transform
}
