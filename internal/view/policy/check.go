package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// WarningKind is what Check found.
type WarningKind string

// The kinds of warnings.
const (
	WarnShadowed    WarningKind = "shadowed"    // the rule never decides anything
	WarnDuplicate   WarningKind = "duplicate"   // the rule is there twice
	WarnTie         WarningKind = "tie"         // two rules differ only in their permission, or in what they show
	WarnTraversable WarningKind = "traversable" // the rule lets hidden directories' names show
	WarnLiteral     WarningKind = "literal"     // wildcards in a pattern of type file or directory
	WarnSpace       WarningKind = "space"       // a space at the pattern's beginning or end
	WarnNothing     WarningKind = "nothing"     // no rule shows anything
	WarnRootOnly    WarningKind = "root-only"   // a widening flag that loses but at the root
	WarnStrict      WarningKind = "strict"      // strict rules hide names below what a flag makes write
	WarnSubstitute  WarningKind = "substitute"  // the policy does not show the content of the substitute
	WarnReveals     WarningKind = "reveals"     // a flag shows what another rule masks
	WarnEntry       WarningKind = "entry"       // the rule means a directory without what is in it; see EntryOnly
)

// Warning is something in a policy that is allowed and probably not meant.
type Warning struct {
	Kind  WarningKind
	Rule  int    // index in Policy.Rules
	Other int    // the rule that causes it, or NoRule
	Text  string // for people, naming both
}

// Check looks for rules that do not do what they seem to, in the order of the
// rules. What it warns of is certain, but it does not find everything.
func (p *Policy) Check() []Warning {
	c := newChecker(p)
	for i, r := range p.rules {
		c.checkText(i, r)
		c.checkShadowed(i, r)
		c.checkTraversable(i)
		c.checkStrict(i, r)
		c.checkSubstitute(i, r)
		c.checkRevealed(i, r)
	}
	c.warnOpened()
	if len(p.rules) > 0 && c.topGrant == 0 {
		c.warn(WarnNothing, 0, NoRule, `every rule says none, and what no rule matches is none too: nothing is visible; `+
			`name a preset or add a rule such as {pattern: "**", permission: read}`)
	}
	slices.SortStableFunc(c.found, func(a, b Warning) int { return cmp.Compare(a.Rule, b.Rule) })
	return slices.CompactFunc(c.found, func(a, b Warning) bool {
		return a.Kind == b.Kind && a.Rule == b.Rule && a.Other == b.Other
	})
}

// checker grows the trie once more, keeping what each node was made from.
type checker struct {
	policy    *Policy
	places    [][]place // of each rule
	languages map[*node][]element
	topGrant  rank          // the highest of all that are not none
	topRule   rank          // likewise, widening flags apart
	opened    map[int][]int // rules and the none-rules whose directories they show
	found     []Warning
}

type place struct {
	placement
	node *node
}

func newChecker(p *Policy) *checker {
	c := &checker{policy: p, places: make([][]place, len(p.rules)), languages: map[*node][]element{}, opened: map[int][]int{}}
	b := newBuilder()
	for i, r := range p.rules {
		reading, err := read(r)
		if err != nil {
			continue // Compile has accepted it
		}
		for _, a := range reading.alternatives {
			for _, pl := range placements(i, r, reading.kind, a) {
				n := b.insert(pl.elements, pl.grant)
				c.languages[n] = pl.elements
				c.places[i] = append(c.places[i], place{pl, n})
				c.top(r, pl.grant)
			}
		}
	}
	b.seal()
	c.policy = &Policy{rules: p.rules, root: b.root, transforms: p.transforms, texts: make([]atomic.Pointer[ruleText], len(p.rules))}
	c.policy.start = c.policy.startState()
	return c
}

func (c *checker) top(r Rule, g grant) {
	if r.Permission == None {
		return
	}
	c.topGrant = max(c.topGrant, g.rank)
	if r.Origin == OriginRule {
		c.topRule = max(c.topRule, g.rank)
	}
}

func (c *checker) warn(kind WarningKind, rule, other int, format string, args ...any) {
	c.found = append(c.found, Warning{Kind: kind, Rule: rule, Other: other, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) checkText(i int, r Rule) {
	// Names such as [id].ts are usual, so a bracket alone is no sign of a mistake.
	if (r.Type == File || r.Type == Directory) && strings.ContainsAny(strings.ReplaceAll(r.Pattern, "[", ""), Metacharacters) {
		c.warn(WarnLiteral, i, NoRule, "%s: type %s takes every character as it is; only a glob has wildcards", r, r.Type)
	}
	if strings.TrimSpace(r.Pattern) != r.Pattern {
		c.warn(WarnSpace, i, NoRule, "%s: the space at the pattern's beginning or end is part of the name", r)
	}
}

// checkShadowed warns if at each place of rule i another rule wins for certain.
func (c *checker) checkShadowed(i int, r Rule) {
	var by grant
	var kind WarningKind
	var own rank
	wins := ""
	for _, pl := range c.places[i] {
		g, k := c.shadowOf(pl)
		switch {
		case k != "":
			by, kind, own = g, k, pl.grant.rank
		case pl.grant.rank.standing() == standsExact && len(c.places[i]) > 1:
			wins = vpath.Quote("/" + r.Pattern)
		default:
			return
		}
	}
	if kind == "" {
		return
	}
	other := c.policy.rules[by.rule]
	switch {
	case wins != "" && (other.Permission != None || by.rank.standing() != standsRule):
	case r.Origin == OriginFlag && other.Permission == None && by.rank.standing() == standsRule:
		if wins != "" {
			kind = WarnRootOnly
		}
		c.warn(kind, i, int(by.rule), "%s %s: %s wins, %s; to allow a file, name its path: %s", r, onlyAt(wins), other,
			"since "+by.rank.lead(own), Flag{r.Permission, "DIR/" + exampleName(r.Pattern)})
	case kind == WarnDuplicate:
		c.warn(kind, i, int(by.rule), "%s is there twice: also as %s", r, other)
	case kind == WarnTie:
		c.warn(kind, i, int(by.rule), "%s never counts: %s is the same but for %s, and the stricter wins", r, other, differenceOf(r, other))
	default:
		c.warn(kind, i, int(by.rule), "%s never counts: %s matches the same paths, and %s", r, other, by.rank.lead(own))
	}
}

// differenceOf names what two rules that tie differ in.
func differenceOf(r, other Rule) string {
	if r.Permission == other.Permission {
		return "what it shows"
	}
	return "the permission"
}

// onlyAt says where a widening flag counts that loses everywhere else.
func onlyAt(path string) string {
	if path == "" {
		return "never counts"
	}
	return "counts at " + path + " alone"
}

// exampleName is the pattern's name for a path of an example.
func exampleName(pattern string) string {
	if name := pattern[strings.LastIndexByte(pattern, '/')+1:]; name != "" && !strings.ContainsAny(name, Metacharacters) {
		return name
	}
	return "FILE"
}

// shadowOf returns the rule that wins wherever pl matches; the kind is "" if
// there is none for certain.
func (c *checker) shadowOf(pl place) (grant, WarningKind) {
	path, ok := witness(pl.elements)
	if !ok {
		return grant{}, ""
	}
	nodes, _ := c.policy.walk(path, nil, nil)
	if !slices.Contains(nodes, pl.node) {
		nodes = append(nodes, pl.node) // ** at the end matched nothing
	}
	for _, n := range nodes {
		for _, g := range []grant{n.end, n.flag} {
			if g.rank == 0 || g.rule == pl.grant.rule || !c.beats(g, pl.grant) {
				continue
			}
			if n == pl.node {
				return g, sameKind(g, pl.grant)
			}
			if g.rank != pl.grant.rank && covers(c.languages[n], pl.elements) {
				return g, WarnShadowed
			}
		}
	}
	return c.inheritedShadow(pl, path)
}

func sameKind(by, own grant) WarningKind {
	switch {
	case by.rank == own.rank && by.transform == own.transform:
		return WarnDuplicate
	case by.rank.tied(own.rank):
		return WarnTie
	}
	return WarnShadowed
}

// beats reports whether g wins over own where both match, whatever else does.
func (c *checker) beats(g, own grant) bool {
	flag := g.rank.standing() == standsFlag
	ownFlag := own.rank.standing() == standsFlag
	switch {
	case flag && !ownFlag:
		return false // meant so, and a none-rule still counts
	case ownFlag && !flag && g.rank.standing() == standsRule:
		return g.permission == None && g.rank > c.topRule
	}
	return g.rank > own.rank || g.rank == own.rank &&
		(g.transform > own.transform || g.transform == own.transform && g.rule < own.rule)
}

// inheritedShadow finds a none-rule above path that wins there for certain and
// outranks pl.
func (c *checker) inheritedShadow(pl place, path vpath.Path) (grant, WarningKind) {
	if pl.grant.permission == None {
		return grant{}, ""
	}
	depth := 0
	for ancestor := range path.Ancestors() {
		nodes, v := c.policy.walk(ancestor, nil, nil)
		certain := depth <= literals(pl.elements) || v.rule.rank > c.topGrant
		if pl.grant.rank.standing() == standsFlag {
			certain = certain && v.rule.rank > c.topRule // a flag takes over a rule's rank
		}
		depth++
		if v.rule.permission != None || v.rule.rank <= pl.grant.rank || !certain {
			continue
		}
		for _, n := range nodes {
			below := append(slices.Clone(c.languages[n]), element{kind: elementStars})
			if n.end == v.rule && covers(below, pl.elements) {
				return v.rule, WarnShadowed
			}
		}
	}
	return grant{}, ""
}
