// Package advise finds the command-line flags that permit what a policy refused. It tries each
// flag: the policy with it decides so.
package advise

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// freshName is a name that no rule is likely to spell out.
const freshName = "\x01"

// Refused is something that a policy did not permit.
type Refused struct {
	Path vpath.Path
	Need policy.Permission // what would have permitted it
	Dir  bool              // the path is a directory, or was to become one, and what is in it is meant
}

// Advice is what would permit what was refused.
type Advice struct {
	// Flags permit it together, each the shortest that wins.
	Flags []policy.Flag
	// Stuck is what no flag permits.
	Stuck []Stuck
}

// Stuck is a path that no flag opens, and what stands in the way.
type Stuck struct {
	Path vpath.Path
	Why  string
}

// Append adds a flag's rule to those of a command that is to run again: of two for
// a path the stricter counts. It changes neither.
func Append(rules []policy.Rule, flag policy.Rule) []policy.Rule {
	return append(slices.Clone(rules), flag)
}

// Replace adds a flag's rule to those that a sandbox has: it takes the place of
// an earlier flag's of the same kind for the same pattern. It changes neither.
func Replace(rules []policy.Rule, flag policy.Rule) []policy.Rule {
	isAlike := func(r policy.Rule) bool {
		return r.Origin == flag.Origin && r.Origin != policy.OriginRule && r.Pattern == flag.Pattern && r.Type == flag.Type
	}
	return append(slices.DeleteFunc(slices.Clone(rules), isAlike), flag)
}

// Flags finds the flags that, added to rules by add, permit what was refused. Each
// was tried: the policy with it decides so. It leaves out paths whose names no flag
// can spell. Errors: those of Compile.
func Flags(rules []policy.Rule, o policy.Options, refused []Refused, add func(rules []policy.Rule, flag policy.Rule) []policy.Rule) (Advice, error) {
	var a Advice
	rules = slices.Clone(rules)
	p, err := policy.Compile(rules, o)
	if err != nil {
		return a, err
	}
	refused = slices.Clone(refused)
	slices.SortStableFunc(refused, func(x, y Refused) int { return strings.Compare(string(x.Path), string(y.Path)) })
	for _, r := range refused {
		if permits(p, r) || !r.isSpelled() {
			continue
		}
		if d := p.Decide(r.Path); !d.Transform.IsZero() {
			a.Stuck = append(a.Stuck, Stuck{r.Path, d.Reason + ": a flag would show the content; change that rule"})
			continue
		}
		flag, with, last := r.shortest(p, rules, o, add)
		if with == nil {
			a.Stuck = append(a.Stuck, Stuck{r.Path, whyNot(last, r)})
			continue
		}
		a.Flags, p, rules = append(a.Flags, flag), with, with.Rules()
	}
	return a, nil
}

// permits reports whether p permits what was refused.
func permits(p *policy.Policy, r Refused) bool {
	if d := p.Decide(r.Path); d.Permission < r.Need {
		return false
	}
	return !r.Dir || p.Decide(r.Path.Child(freshName)).Permission >= r.Need
}

// isSpelled reports whether a flag can name the path: it is no pattern, and a
// person can type it.
func (r Refused) isSpelled() bool {
	text := r.Path.Rel()
	return !r.Path.IsRoot() && !strings.ContainsAny(text, policy.Metacharacters) &&
		vpath.Escape(text) == text && strings.TrimSpace(text) == text
}

// shortest returns the shortest flag that permits r, and the policy with it; nil
// if none does, and then the policy with the flag that comes nearest. It advises
// no flag that shows what now, the policy without it, masks.
func (r Refused) shortest(now *policy.Policy, rules []policy.Rule, o policy.Options, add func([]policy.Rule, policy.Rule) []policy.Rule) (flag policy.Flag, with, last *policy.Policy) {
	end := ""
	if r.Dir {
		end = "/"
	}
	for _, text := range []string{r.Path.Base(), r.Path.Rel(), "/" + r.Path.Rel()} {
		flag = policy.Flag{Permission: r.Need, Pattern: text + end}
		rule, _, err := policy.ParseFlag(policy.OriginFlag, flag.Permission, flag.Pattern, nil)
		if err != nil {
			continue
		}
		p, err := policy.Compile(add(rules, rule), o)
		if err != nil {
			continue
		}
		if last = p; permits(p, r) && (now.Reveals() || !p.Reveals()) {
			return flag, p, p
		}
	}
	return flag, nil, last
}

// whyNot says what keeps r from being permitted, and what to change, for people.
func whyNot(p *policy.Policy, r Refused) string {
	if p == nil {
		return "the policy can hold no more rules"
	}
	d := p.Decide(r.Path)
	if d.Permission >= r.Need { // it is what is in it
		d = p.Decide(r.Path.Child(freshName))
	}
	switch {
	case d.Rule == policy.NoRule || d.Reason == policy.ReasonProject:
		return d.Reason
	case p.Rule(d.Rule).Origin == policy.OriginHide:
		return "--hide " + policy.QuoteForShell(p.Rule(d.Rule).Pattern) + " hides it: leave that out"
	case r.Dir:
		return d.Reason + ": change that rule, or name a file in it: " +
			policy.Flag{Permission: r.Need, Pattern: r.Path.Rel() + "/FILE"}.String()
	}
	return d.Reason + ": change that rule"
}
