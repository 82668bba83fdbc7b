package policy

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The bounds of a policy. What exceeds them is refused by Compile, so that a
// decision never takes unbounded time.
const (
	maxPatterns = 1 << 16 // all rules together, braces expanded
	// maxTried bounds what no index narrows: globs without a literal beginning
	// or end of their own, and a ** behind two others, which may keep any
	// number of places in a path open.
	maxTried = 1024
)

// NoRule is the index where no rule decides.
const NoRule = -1

// Options are what Compile may be told beside the rules.
type Options struct {
	// Reserved paths, and everything below them, are none above all rules: the
	// state directory and mount points of our own that lie in the source.
	Reserved []vpath.Path
	// Places are paths at which another view is mounted: view, and everything below them none,
	// above all rules. None of them may be below another, or be reserved.
	Places []vpath.Path
}

// Policy is a compiled set of rules. It is immutable: to change the rules of a
// live sandbox, compile new ones and swap the pointer.
type Policy struct {
	rules    []Rule
	reserved []vpath.Path
	places   []vpath.Path
	texts    []atomic.Pointer[ruleText] // of each rule, see text
	root     *node
	start    State // at the workspace itself
	own      bool  // some rule lets own entries be made
	futures  func() map[*node]uint32
	// transforms says that some rule has a Transform.
	transforms bool
	locks      *lockNode // nil: there is none
}

// ruleText is a rule in reasons.
type ruleText struct{ own, inherited string }

// text returns rule i in reasons. It is made when it is first asked for, so that
// Decide need not allocate again; most rules of a preset never decide.
func (p *Policy) text(i int) *ruleText {
	t := p.texts[i].Load()
	if t == nil {
		own := p.rules[i].String()
		t = &ruleText{own: own, inherited: own + ", inherited from a directory above"}
		p.texts[i].Store(t)
	}
	return t
}

// recent are what Compile returned last: a command asks for the policies of its workspace and of
// its mounts several times, and a preset takes a millisecond.
var recent struct {
	mu   sync.Mutex
	all  [4]*Policy
	next int
}

// Compile returns the policy that rules make up. Their order is without
// meaning. Errors: Invalid, beginning with the Source of the rule at fault.
func Compile(rules []Rule, o Options) (*Policy, error) {
	if p := findRecent(rules, o); p != nil {
		return p, nil
	}
	p, err := compile(rules, o)
	if err == nil {
		recent.mu.Lock()
		defer recent.mu.Unlock()
		recent.all[recent.next] = p
		recent.next = (recent.next + 1) % len(recent.all)
	}
	return p, err
}

func findRecent(rules []Rule, o Options) *Policy {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	for _, p := range recent.all {
		if p != nil && slices.Equal(p.rules, rules) && slices.Equal(p.reserved, o.Reserved) && slices.Equal(p.places, o.Places) {
			return p
		}
	}
	return nil
}

func compile(rules []Rule, o Options) (*Policy, error) {
	p := &Policy{rules: slices.Clone(rules), reserved: slices.Clone(o.Reserved), places: slices.Clone(o.Places)}
	p.texts = make([]atomic.Pointer[ruleText], len(rules))
	b := newBuilder()
	for i, r := range p.rules {
		p.own = p.own || r.Own
		p.transforms = p.transforms || !r.Transform.IsZero()
		if err := b.addRule(i, r); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "%s: %w", where(i, r), err)
		}
	}
	for _, path := range slices.Concat(p.reserved, p.places) {
		if path.IsRoot() {
			return nil, errdefs.New(errdefs.Invalid, "the workspace itself cannot be reserved")
		}
		b.addReserved(path, slices.Contains(p.places, path))
	}
	if b.patterns > maxPatterns {
		return nil, errdefs.New(errdefs.Invalid, "policy of %d patterns: at most %d are allowed", b.patterns, maxPatterns)
	}
	if tried := b.seal(); tried > maxTried {
		return nil, errdefs.New(errdefs.Invalid, "policy has %d patterns that can only be tried one by one, at most %d are allowed: "+
			"give them a literal beginning or end of their own, and no more than two ** each", tried, maxTried)
	}
	p.root = b.root
	p.start = p.startState()
	p.futures = sync.OnceValue(p.findFutures)
	return p, nil
}

// With returns the policy with one more rule. Errors: as Compile.
func (p *Policy) With(r Rule) (*Policy, error) {
	with, err := compile(append(slices.Clone(p.rules), r), Options{Reserved: p.reserved, Places: p.places})
	if err == nil {
		with.locks = p.locks
	}
	return with, err
}

// where names rule i in an error.
func where(i int, r Rule) string {
	pattern := "pattern " + vpath.Quote(r.Pattern)
	if r.Source == "" {
		return fmt.Sprintf("rule %d: %s", i+1, pattern)
	}
	return vpath.Escape(r.Source) + ": " + pattern
}

// Rules returns the rules as they were given to Compile; Decision.Rule is an
// index in it.
func (p *Policy) Rules() []Rule { return slices.Clone(p.rules) }

// Rule returns the rule of an index that Decision.Rule or Explain gave; i is
// not NoRule.
func (p *Policy) Rule(i int) Rule { return p.rules[i] }

// builder grows the trie.
type builder struct {
	root     *node
	children map[childKey]*node // by glob
	globs    map[*node][]globChild
	deep     int // nodes for a ** behind two others
	patterns int
}

// childKey finds a node's child for a glob.
type childKey struct {
	parent *node
	text   string
}

func newBuilder() *builder {
	return &builder{
		root:     new(node),
		children: map[childKey]*node{},
		globs:    map[*node][]globChild{},
	}
}

func (b *builder) addRule(i int, r Rule) error {
	if err := r.check(); err != nil {
		return err
	}
	reading, err := read(r)
	if err != nil {
		return err
	}
	b.patterns += len(reading.alternatives)
	if b.patterns > maxPatterns {
		return errdefs.New(errdefs.Invalid, "policy of more than %d patterns", maxPatterns)
	}
	for _, a := range reading.alternatives {
		for _, p := range placements(i, r, reading.kind, a) {
			b.insert(p.elements, p.grant)
		}
	}
	return nil
}

// placement is one pattern by which a rule counts, with the rank it has there.
type placement struct {
	elements []element
	grant    grant
}

// placements returns how alternative a of rule i counts. A widening flag of
// type file names exactly one path, that which its text leads to from the root;
// if it has no slash it is an ordinary flag at any depth besides.
func placements(i int, r Rule, kind PatternType, a alternative) []placement {
	place := func(s standing, a alternative) placement {
		return placement{a.elements, grant{
			rank: newRank(s, r, kind, a), rule: int32(i), permission: r.Permission, own: r.Own,
			transform: r.Transform.strictness(),
		}}
	}
	switch {
	case r.Origin == OriginHide:
		return []placement{place(standsHide, a)}
	case r.Origin == OriginRule:
		return []placement{place(standsRule, a)}
	case kind != File:
		return []placement{place(standsFlag, a)}
	case a.anchored:
		return []placement{place(standsExact, a)}
	}
	name := a.elements[1]
	exact := alternative{elements: []element{name}, prefix: 1 + len(name.text), anchored: true}
	return []placement{place(standsExact, exact), place(standsFlag, a)}
}

// addReserved hides path and all below it, above all rules. The path itself shows if it is a place.
func (b *builder) addReserved(path vpath.Path, isPlace bool) {
	elements := make([]element, 0, 8)
	for name := range path.Elements() {
		elements = append(elements, element{kind: elementLiteral, text: name})
	}
	all := alternative{prefix: len(path)}
	b.insert(append(elements, element{kind: elementStars}), grant{rank: newRank(standsReserved, Rule{}, Directory, all), rule: NoRule})
	if isPlace { // of type file, it wins over the other one
		b.insert(elements, grant{rank: newRank(standsReserved, Rule{Permission: View}, File, all), rule: NoRule, permission: View})
	}
}

// insert adds a rule's grant where elements lead to, and returns that node.
func (b *builder) insert(elements []element, g grant) *node {
	n, stars := b.root, 0
	for _, e := range elements {
		if e.kind == elementStars {
			stars++
		}
		n = b.child(n, e, stars)
	}
	if g.rank.standing() == standsFlag {
		n.flag = higher(n.flag, g)
	} else {
		n.end = higher(n.end, g)
	}
	return n
}

// child returns n's child for e, made if there is none; stars counts the **
// up to and including e.
func (b *builder) child(n *node, e element, stars int) *node {
	if c := b.known(n, e); c != nil {
		return c
	}
	c := &node{nested: stars > 0}
	switch e.kind {
	case elementLiteral:
		if n.literals == nil {
			n.literals = map[string]*node{}
		}
		n.literals[e.text] = c
	case elementGlob:
		b.children[childKey{n, e.text}] = c
		b.globs[n] = append(b.globs[n], globChild{e.glob, c})
	case elementAny:
		n.any = c
	case elementStars:
		n.stars = c
		c.loops = true
		if stars > 2 {
			b.deep++
		}
	}
	return c
}

// known returns the child that n has for e, nil if there is none.
func (b *builder) known(n *node, e element) *node {
	switch e.kind {
	case elementLiteral:
		return n.literals[e.text]
	case elementGlob:
		return b.children[childKey{n, e.text}]
	case elementAny:
		return n.any
	case elementStars:
	}
	return n.stars
}

// seal finishes the trie and returns how much of it is narrowed by no index.
func (b *builder) seal() int {
	tried := b.deep
	for n, children := range b.globs {
		n.globs = newGlobIndex(children)
		tried += n.globs.tried()
	}
	b.root.seal(grant{})
	return tried
}
