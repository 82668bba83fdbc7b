package policy_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

var (
	someNames = []string{"a", "b", "ab", ".env", "x.pem", "é", "\xff", "a\xffb", ".agentfense.yaml"}
	someParts = []string{"a", "b", "ab", "*", "**", "a*", "*b", "*.pem", ".env*", "?", "??", "[ab]", "[^a]", "a?", "*a*", "é", "a*b", "?*"}
)

func genPath(depth int) *rapid.Generator[vpath.Path] {
	return rapid.Custom(func(t *rapid.T) vpath.Path {
		p := vpath.Root
		for _, n := range rapid.SliceOfN(rapid.SampledFrom(someNames), 0, depth).Draw(t, "names") {
			p = p.Child(n)
		}
		return p
	})
}

// genPattern makes no pattern in which a negated class could match a slash in
// doublestar: there it stands alone in its element.
func genPattern(parts []string) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := rapid.SampledFrom([]string{"", "", "/", "./"}).Draw(t, "beginning") +
			strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 4).Draw(t, "parts"), "/") +
			rapid.SampledFrom([]string{"", "", "/"}).Draw(t, "end")
		return text
	})
}

func genRule() *rapid.Generator[policy.Rule] {
	return rapid.Custom(func(t *rapid.T) policy.Rule {
		r := policy.Rule{
			Type:       rapid.SampledFrom([]policy.PatternType{policy.Auto, policy.Auto, policy.Glob, policy.Directory, policy.File}).Draw(t, "type"),
			Permission: rapid.SampledFrom([]policy.Permission{policy.None, policy.None, policy.View, policy.Read, policy.Write}).Draw(t, "permission"),
			Priority:   rapid.SampledFrom([]int32{0, 0, 0, -1, 1, 100}).Draw(t, "priority"),
			Origin:     rapid.SampledFrom([]policy.Origin{policy.OriginRule, policy.OriginRule, policy.OriginRule, policy.OriginFlag, policy.OriginHide}).Draw(t, "origin"),
		}
		switch r.Type {
		case policy.File, policy.Directory:
			names := slices.DeleteFunc(slices.Clone(someNames), func(s string) bool { return strings.Contains(s, "\xff") })
			r.Pattern = strings.TrimRight(genPattern(names).Draw(t, "pattern"), "/")
		case policy.Auto, policy.Glob:
			r.Pattern = genPattern(someParts).Draw(t, "pattern")
		}
		switch {
		case r.Origin == policy.OriginHide:
			r.Permission = policy.None
		case r.Origin == policy.OriginFlag && r.Permission == policy.None:
			r.Permission = policy.Read
		}
		if r.Permission == policy.Read && r.Origin == policy.OriginRule {
			r.Transform = rapid.SampledFrom([]policy.Transform{{}, {}, {Redact: policy.Env}, {Redact: policy.JSON}, {Substitute: "s"}}).Draw(t, "transform")
		}
		return r
	})
}

func genRules() *rapid.Generator[[]policy.Rule] { return rapid.SliceOfN(genRule(), 0, 8) }

func compile(t rapid.TB, rules []policy.Rule, reserved ...vpath.Path) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(rules, policy.Options{Reserved: reserved})
	if err != nil {
		t.Fatalf("Compile(%v): %v", rules, err)
	}
	return p
}

// universe is every path up to a depth of 3.
func universe() []vpath.Path {
	all := []vpath.Path{vpath.Root}
	for level := all; len(all) < 1+9+81+729; {
		var next []vpath.Path
		for _, p := range level {
			for _, n := range someNames {
				next = append(next, p.Child(n))
			}
		}
		all, level = append(all, next...), next
	}
	return all
}

func TestPropertyIndexEqualsTryingEveryRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		var reserved []vpath.Path
		if q := genPath(2).Draw(t, "reserved"); !q.IsRoot() && rapid.Bool().Draw(t, "reserve") {
			reserved = append(reserved, q)
		}
		p, ref := compile(t, rules, reserved...), newReference(rules, reserved)
		for _, path := range rapid.SliceOfN(genPath(5), 1, 30).Draw(t, "paths") {
			got := p.Decide(path)
			if want, transform := ref.decide(path); got.Permission != want || got.Transform != transform {
				t.Fatalf("Decide(%s) = %s with %q by %q, want %s with %q", path, got.Permission, got.Transform, got.Reason, want, transform)
			}
		}
	})
}

func TestPropertyAVisiblePathHasVisibleAncestors(t *testing.T) {
	paths := universe()
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		for _, path := range paths {
			if p.Decide(path).Permission == policy.None {
				continue
			}
			for a := range path.Ancestors() {
				if p.Decide(a).ForDir() == policy.None {
					t.Fatalf("%s is visible, its ancestor %s is not", path, a)
				}
			}
		}
	})
}

// A directory is said to be traversable only if some path below it would be
// granted by the rule that Explain names, were that rule alone with the
// none-rules that hide the directory.
func TestPropertyTraversableNamesARuleThatMayGrantBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		p := compile(t, rules)
		path := genPath(4).Draw(t, "path")
		e := p.Explain(path)
		if d := p.Decide(path); d.Permission != policy.None || !d.Traversable || path.IsRoot() {
			return
		}
		if e.Below == policy.NoRule || rules[e.Below].Permission == policy.None {
			t.Fatalf("%s is traversable, but Explain names rule %d", path, e.Below)
		}
		alone := compile(t, []policy.Rule{rules[e.Below]})
		if !alone.Decide(path).Traversable && alone.Decide(path).Permission == policy.None {
			t.Fatalf("%s: rule %v alone grants nothing below", path, rules[e.Below])
		}
	})
}

func TestPropertyChildWritableAndMayMkdirMissNothing(t *testing.T) {
	paths := universe()
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		for _, path := range paths {
			if path.IsRoot() || p.Decide(path).Permission != policy.Write {
				continue
			}
			if !p.ChildWritable(path.Dir()) {
				t.Fatalf("%s is writable, but no child of its directory", path)
			}
			if !p.MayMkdir(path) {
				t.Fatalf("%s is writable, but mkdir is refused", path)
			}
			for a := range path.Ancestors() {
				if d := p.Decide(a); !p.MayMkdir(a) && (d.Permission != policy.None || d.Rule == policy.NoRule) && a != policy.ProjectFile {
					t.Fatalf("%s is writable, but mkdir is refused at its ancestor %s", path, a)
				}
			}
		}
	})
}

func TestPropertyHidingNeverWidens(t *testing.T) {
	paths := universe()
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		hide := genRule().Draw(t, "hide")
		hide.Origin, hide.Permission, hide.Transform = policy.OriginHide, policy.None, policy.Transform{}
		before, after := compile(t, rules), compile(t, append(slices.Clone(rules), hide))
		for _, path := range paths {
			b, a := before.Decide(path), after.Decide(path)
			if a.Permission > b.Permission || a.ForDir() > b.ForDir() {
				t.Fatalf("%s: %v before, %v after --hide %s", path, b, a, hide.Pattern)
			}
		}
	})
}

func TestPropertyAWideningFlagHidesNothingAndRevealsNoNone(t *testing.T) {
	paths := universe()
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		flag := genRule().Draw(t, "flag")
		flag.Origin, flag.Permission, flag.Transform = policy.OriginFlag, max(flag.Permission, policy.View), policy.Transform{}
		before, after := compile(t, rules), compile(t, append(slices.Clone(rules), flag))
		flagNamesOnePath := flag.Type == policy.File || flag.Type == policy.Auto && !strings.ContainsAny(flag.Pattern, "*?[")
		for _, path := range paths {
			b, a := before.Decide(path), after.Decide(path)
			if b.Permission != policy.None && a.Permission == policy.None {
				t.Fatalf("%s: %v before, %v after a flag for %s", path, b, a, flag.Pattern)
			}
			if b.Permission == policy.None && b.Rule != policy.NoRule && a.Permission != policy.None && !flagNamesOnePath {
				t.Fatalf("%s: %v before, %v after a flag for %s", path, b, a, flag.Pattern)
			}
		}
	})
}

func TestPropertyOrderOfRulesIsWithoutMeaning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		other := rapid.Permutation(rules).Draw(t, "permutation")
		a, b := compile(t, rules), compile(t, other)
		for _, path := range rapid.SliceOfN(genPath(4), 1, 20).Draw(t, "paths") {
			x, y := a.Decide(path), b.Decide(path)
			if x.Permission != y.Permission || x.Traversable != y.Traversable || x.Transform != y.Transform {
				t.Fatalf("%s: %v in one order, %v in another", path, x, y)
			}
			if a.ChildWritable(path) != b.ChildWritable(path) || a.MayMkdir(path) != b.MayMkdir(path) {
				t.Fatalf("%s: ChildWritable or MayMkdir depends on the order", path)
			}
		}
	})
}

func TestPropertyUnmatchedIsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		path := genPath(4).Draw(t, "path")
		d := p.Decide(path)
		if len(p.Matching(path)) == 0 && d.Permission != policy.None {
			t.Fatalf("no rule matches %s, yet it is %s", path, d.Permission)
		}
		if (d.Permission != policy.None) != (d.Rule != policy.NoRule && p.Rule(d.Rule).Permission != policy.None) {
			t.Fatalf("%s is %s by rule %d", path, d.Permission, d.Rule)
		}
	})
}

func TestPropertyAStateDecidesLikeThePolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := compile(t, genRules().Draw(t, "rules"))
		path := genPath(5).Draw(t, "path")
		s := p.At(vpath.Root)
		for name := range path.Elements() {
			s = s.Child(name)
		}
		for what, got := range map[string]policy.Decision{"walked": s.Decision(), "At": p.At(path).Decision()} {
			if want := p.Decide(path); got != want {
				t.Fatalf("%s: %s state decides %v, want %v", path, what, got, want)
			}
		}
		if got, want := s.ChildWritable(), p.ChildWritable(path); got != want {
			t.Fatalf("%s: state ChildWritable = %v, want %v", path, got, want)
		}
		for _, name := range someNames {
			if got, want := s.DecideChild(name), p.Decide(path.Child(name)); got != want {
				t.Fatalf("%s: DecideChild(%q) = %v, want %v", path, name, got, want)
			}
		}
	})
}

func TestPropertyBracesStandForSeveralRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := genRules().Draw(t, "rules")
		part := rapid.SampledFrom(someParts)
		x, y, z := part.Draw(t, "x"), part.Draw(t, "y"), part.Draw(t, "z")
		r := genRule().Draw(t, "rule")
		r.Type = policy.Glob
		with := func(patterns ...string) *policy.Policy {
			rules := slices.Clone(first)
			for _, s := range patterns {
				r.Pattern = s
				rules = append(rules, r)
			}
			return compile(t, rules)
		}
		braces, written := with("/"+x+"/{"+y+","+z+"/}"), with("/"+x+"/"+y, "/"+x+"/"+z+"/")
		for _, path := range rapid.SliceOfN(genPath(4), 1, 20).Draw(t, "paths") {
			a, b := braces.Decide(path), written.Decide(path)
			if a.Permission != b.Permission || a.Traversable != b.Traversable {
				t.Fatalf("%s: %v with braces, %v written out", path, a, b)
			}
		}
	})
}

func TestPropertyExplainAgreesWithDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		p := compile(t, rules)
		path := genPath(4).Draw(t, "path")
		d, e := p.Decide(path), p.Explain(path)
		if e.Decision != d {
			t.Fatalf("Explain(%s) decides %v, want %v", path, e.Decision, d)
		}
		switch {
		case e.Ancestor != "":
			if d.Rule != e.Inherited || p.Decide(e.Ancestor).Rule != d.Rule {
				t.Fatalf("%s: inherits rule %d from %s, decided by rule %d", path, e.Inherited, e.Ancestor, d.Rule)
			}
		case len(e.Matches) > 0:
			if e.Matches[0].Rule != d.Rule {
				t.Fatalf("%s: the first match is rule %d, decided by rule %d", path, e.Matches[0].Rule, d.Rule)
			}
		case d.Rule != policy.NoRule:
			t.Fatalf("%s: decided by rule %d, which does not match", path, d.Rule)
		}
	})
}

// A rule of which Check says that it never counts can be left out.
func TestPropertyShadowedRulesNeverCount(t *testing.T) {
	paths := universe()
	rapid.Check(t, func(t *rapid.T) {
		rules := genRules().Draw(t, "rules")
		p := compile(t, rules)
		for _, w := range p.Check() {
			if w.Kind != policy.WarnShadowed && w.Kind != policy.WarnDuplicate && w.Kind != policy.WarnTie {
				continue
			}
			without := compile(t, slices.Delete(slices.Clone(rules), w.Rule, w.Rule+1))
			for _, path := range paths {
				a, b := p.Decide(path), without.Decide(path)
				if a.Permission != b.Permission || a.Transform != b.Transform {
					t.Fatalf("%s\nbut %s is %s %s with it and %s %s without", w.Text, path, a.Permission, a.Transform, b.Permission, b.Transform)
				}
			}
		}
	})
}
