package policy

import (
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Refused is something that a policy did not permit.
type Refused struct {
	Path vpath.Path
	Need Permission // what would have permitted it
	Dir  bool       // the path is a directory, or was to become one, and what is in it is meant
}

// Flag is a widening flag of the command line.
type Flag struct {
	Permission Permission
	Pattern    string
}

// String returns the flag for a shell: --write '.venv/'.
func (f Flag) String() string { return "--" + f.Permission.String() + " " + quoteForShell(f.Pattern) }

// Advice is what would permit what was refused.
type Advice struct {
	// Flags permit it together, each the shortest that wins.
	Flags []Flag
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
func Append(rules []Rule, flag Rule) []Rule { return append(slices.Clone(rules), flag) }

// Replace adds a flag's rule to those that a sandbox has: it takes the place of
// an earlier flag's of the same kind for the same pattern. It changes neither.
func Replace(rules []Rule, flag Rule) []Rule {
	isAlike := func(r Rule) bool {
		return r.Origin == flag.Origin && r.Origin != OriginRule && r.Pattern == flag.Pattern && r.Type == flag.Type
	}
	return append(slices.DeleteFunc(slices.Clone(rules), isAlike), flag)
}

// Advise finds the flags that, added to rules by add, permit what was refused. Each
// was tried: the policy with it decides so. It leaves out paths whose names no flag
// can spell. Errors: those of Compile.
func Advise(rules []Rule, o Options, refused []Refused, add func(rules []Rule, flag Rule) []Rule) (Advice, error) {
	var a Advice
	rules = slices.Clone(rules)
	p, err := Compile(rules, o)
	if err != nil {
		return a, err
	}
	refused = slices.Clone(refused)
	slices.SortStableFunc(refused, func(x, y Refused) int { return strings.Compare(string(x.Path), string(y.Path)) })
	for _, r := range refused {
		if p.permits(r) || !r.isSpelled() {
			continue
		}
		flag, with, last := r.shortest(rules, o, add)
		if with == nil {
			a.Stuck = append(a.Stuck, Stuck{r.Path, last.whyNot(r)})
			continue
		}
		a.Flags, p, rules = append(a.Flags, flag), with, with.rules
	}
	return a, nil
}

// permits reports whether p permits what was refused.
func (p *Policy) permits(r Refused) bool {
	if d := p.Decide(r.Path); d.Permission < r.Need {
		return false
	}
	return !r.Dir || p.Decide(r.Path.Child(freshName)).Permission >= r.Need
}

// isSpelled reports whether a flag can name the path: it is no pattern, and a
// person can type it.
func (r Refused) isSpelled() bool {
	text := r.Path.Rel()
	return !r.Path.IsRoot() && !strings.ContainsAny(text, metacharacters) &&
		vpath.Escape(text) == text && strings.TrimSpace(text) == text
}

// shortest returns the shortest flag that permits r, and the policy with it; nil
// if none does, and then the policy with the flag that comes nearest.
func (r Refused) shortest(rules []Rule, o Options, add func([]Rule, Rule) []Rule) (flag Flag, with, last *Policy) {
	end := ""
	if r.Dir {
		end = "/"
	}
	for _, text := range []string{r.Path.Base(), r.Path.Rel(), "/" + r.Path.Rel()} {
		flag = Flag{r.Need, text + end}
		rule, _, err := ParseFlag(OriginFlag, flag.Permission, flag.Pattern, nil)
		if err != nil {
			continue
		}
		p, err := Compile(add(rules, rule), o)
		if err != nil {
			continue
		}
		if last = p; p.permits(r) {
			return flag, p, p
		}
	}
	return flag, nil, last
}

// whyNot says what keeps r from being permitted, and what to change, for people.
func (p *Policy) whyNot(r Refused) string {
	if p == nil {
		return "the policy can hold no more rules"
	}
	d := p.Decide(r.Path)
	if d.Permission >= r.Need { // it is what is in it
		d = p.Decide(r.Path.Child(freshName))
	}
	switch {
	case d.Rule == NoRule || d.Reason == reasonProject:
		return d.Reason
	case p.rules[d.Rule].Origin == OriginHide:
		return "--hide " + quoteForShell(p.rules[d.Rule].Pattern) + " hides it: leave that out"
	case r.Dir:
		return d.Reason + ": change that rule, or name a file in it: " +
			Flag{r.Need, r.Path.Rel() + "/FILE"}.String()
	}
	return d.Reason + ": change that rule"
}

// quoteForShell puts text between single quotes if a shell would read it
// otherwise than as it is.
func quoteForShell(text string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./@%+=:,", c)
	}
	if text != "" && strings.IndexFunc(text, func(c rune) bool { return !plain(c) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
