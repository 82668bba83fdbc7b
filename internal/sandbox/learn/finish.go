package learn

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/prove"
)

// maxRounds bounds how often the rules are changed until they are right.
const maxRounds = 100

// maxDrafts is how many rules a learned policy can have.
const maxDrafts = 10_000

// hidePriority is that of a copied rule of --hide.
const hidePriority = 1000

// draft is a rule with what it is made of.
type draft struct {
	rule policy.Rule
	item *item // nil for a rule that hides
	why  string
}

// finish turns the items into rules that permit every use and nothing beyond the base.
func (l *learner) finish(items []*item) error {
	var drafts []*draft
	for _, i := range items {
		drafts = append(drafts, l.draft(i))
	}
	if len(drafts) > maxDrafts {
		return errdefs.New(errdefs.Exhausted, "%d rules: the used paths have too little in common for a policy that people can read", len(drafts))
	}
	var p *policy.Policy
	for round := range maxRounds {
		l.publish(drafts)
		var err error
		if p, err = policy.Compile(l.out.All(), l.in.Options); err != nil {
			return err
		}
		more, changed := l.repair(p, drafts, len(l.out.Under), round)
		if drafts = more; !changed {
			break
		}
	}
	l.describe(p)
	return nil
}

// repair adds what the policy lacks and takes away what it permits beyond the base. offset is
// the index of the first draft among the rules of p.
func (l *learner) repair(p *policy.Policy, drafts []*draft, offset, round int) ([]*draft, bool) {
	before := len(drafts)
	drafts, changed := l.hideSecrets(p, drafts, offset), false
	if len(drafts) > before {
		return drafts, true
	}
	if l.bare {
		if drafts, changed = l.expand(drafts, func(*draft) bool { return true }); changed {
			return drafts, true
		}
		return l.addMissing(p, drafts) // exact rules permit what the base permits there
	}
	differences, err := l.differences(offset)
	if err != nil || round == maxRounds/2 { // cannot be compared: nothing is generalised
		drafts, changed = l.expand(drafts, func(*draft) bool { return true })
	} else {
		drafts, changed = l.restrict(drafts, differences)
	}
	if changed {
		return drafts, true
	}
	return l.addMissing(p, drafts)
}

// differences compares the base with the learned rules. The rules of the preset, which are slow to
// compare, are left out, because the learned policy has them all: they hide what they hide whatever
// the base permits, but for exact rules, of which each permits what the base permits there.
func (l *learner) differences(offset int) ([]prove.Difference, error) {
	learned := l.out.All()
	base := l.base.Rules()
	isHiding := func(r policy.Rule) bool { return l.hiding[withoutSource(r)] }
	base = slices.DeleteFunc(slices.Clone(base), isHiding)
	l.offset = offset - count(learned[:offset], isHiding)
	learned = append(slices.DeleteFunc(slices.Clone(learned[:offset]), isHiding), learned[offset:]...)
	a, err := policy.Compile(base, l.in.Options)
	if err != nil {
		return nil, err
	}
	b, err := policy.Compile(learned, l.in.Options)
	if err != nil {
		return nil, err
	}
	l.bounds = a
	return prove.Diff(a, b)
}

func withoutSource(r policy.Rule) policy.Rule {
	r.Source = ""
	return r
}

func count(rules []policy.Rule, is func(policy.Rule) bool) (n int) {
	for _, r := range rules {
		if is(r) {
			n++
		}
	}
	return n
}

// draft returns the rule of an item.
func (l *learner) draft(i *item) *draft {
	r := policy.Rule{Permission: i.permission}
	dir := strings.TrimSuffix(escapePath(i.dir), "/")
	switch i.shape {
	case exact:
		r = l.exactRule(i.uses[0])
	case random:
		r.Pattern = dir + "/" + i.text
	case extension:
		r.Pattern = dir + "/*" + i.text
	case extensions:
		r.Pattern = dir + "/**/*" + i.text
	case tree:
		r.Pattern = dir + "/**"
	case trees:
		r.Pattern, r.Priority = dir+"/**/"+escapeGlob(i.text)+"/**", 1
	}
	if len(r.Pattern) > 3 && strings.HasPrefix(r.Pattern, "/**/") {
		r.Pattern = r.Pattern[1:]
	}
	return &draft{rule: r, item: i}
}

// exactRule returns the rule for one path alone.
func (l *learner) exactRule(n *node) policy.Rule {
	r := policy.Rule{Pattern: string(n.path), Permission: n.need}
	if n.secret {
		r.Priority = secretPriority
	}
	if needsEscapes(r.Pattern) {
		r.Pattern = escapePath(n.path)
	}
	if n.need == policy.Read {
		r.Transform = l.base.Decide(n.path).Transform
	}
	return r
}

// needsEscapes reports whether a path as a pattern would be a glob, or cannot be in a file.
func needsEscapes(path string) bool {
	return !utf8.ValidString(path) || strings.ContainsAny(path, policy.Metacharacters)
}

// publish takes the drafts over as the rules, in the order in which people read them.
func (l *learner) publish(drafts []*draft) {
	slices.SortStableFunc(drafts, func(a, b *draft) int {
		hides := func(d *draft) int {
			if d.item == nil {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(hides(a), hides(b)), strings.Compare(a.rule.Pattern, b.rule.Pattern))
	})
	l.out.Rules = l.out.Rules[:0]
	for _, d := range drafts {
		why := d.why
		if d.item != nil {
			why = d.item.evidence()
		}
		l.out.Rules = append(l.out.Rules, Rule{d.rule, why})
	}
}

// hideSecrets adds a rule for each known secret that the policy would show and that was not
// used.
func (l *learner) hideSecrets(p *policy.Policy, drafts []*draft, offset int) []*draft {
	for _, s := range l.in.Secrets {
		if n := l.at(s.Path); n != nil && n.need > policy.None || p.Decide(s.Path).Permission == policy.None || p.Decide(s.Path).Rule < offset {
			continue
		}
		r := policy.Rule{Pattern: string(s.Path), Priority: secretPriority, Own: true}
		if needsEscapes(r.Pattern) {
			r.Pattern = escapePath(s.Path)
		}
		if hides(drafts, r) {
			continue
		}
		drafts = append(drafts, &draft{rule: r, why: "a secret that was not used: " + s.Reason})
	}
	return drafts
}

func hides(drafts []*draft, r policy.Rule) bool {
	return slices.ContainsFunc(drafts, func(d *draft) bool {
		return d.rule.Pattern == r.Pattern && d.rule.Type == r.Type && d.rule.Priority >= r.Priority && d.item == nil
	})
}

// restrict copies rules of the base that hide what the drafts would show. Where there is no such
// rule, the draft becomes exact rules.
func (l *learner) restrict(drafts []*draft, differences []prove.Difference) ([]*draft, bool) {
	changed := false
	wide := map[int]bool{}
	for _, d := range differences {
		if !d.Widens() || d.Dir || d.B.Rule < l.offset {
			continue
		}
		if r, ok := l.copied(d); ok && !hides(drafts, r) {
			drafts = append(drafts, &draft{rule: r, why: "the policy of the run has this rule: " + vpath.Escape(l.bounds.Rule(d.A.Rule).Source)})
			changed = true
		} else if i := d.B.Rule - l.offset; i >= 0 {
			wide[i] = true
		}
	}
	if changed {
		return drafts, true // it may be enough
	}
	at := map[*draft]bool{}
	for i := range wide {
		if i < len(drafts) {
			at[drafts[i]] = true
		}
	}
	return l.expand(drafts, func(d *draft) bool { return at[d] })
}

// copied returns a copy of the rule of the base that hides what differs. A rule that permits
// something could permit more than it did among the others of the base.
func (l *learner) copied(d prove.Difference) (policy.Rule, bool) {
	if d.A.Rule == policy.NoRule || d.A.Permission > policy.None {
		return policy.Rule{}, false
	}
	r := l.bounds.Rule(d.A.Rule)
	r.Priority = max(r.Priority, 1)
	if r.Origin == policy.OriginHide {
		r.Priority = hidePriority
	}
	r.Origin, r.Source = policy.OriginRule, ""
	return r, true
}

// expand replaces generalised drafts by one exact rule for each use.
func (l *learner) expand(drafts []*draft, which func(*draft) bool) (out []*draft, changed bool) {
	for _, d := range drafts {
		if d.item == nil || d.item.shape == exact && utf8.ValidString(string(d.item.dir)) || !which(d) {
			out = append(out, d)
			continue
		}
		changed = true
		if d.item.shape == exact { // its ? matches other names
			d.item.uses[0].unsayable = true
			continue
		}
		for _, n := range d.item.uses {
			out = append(out, l.draft(single(n)))
		}
	}
	return out, changed
}

// priorities are tried, one after another, where an exact rule does not win.
var priorities = []int32{0, 1, secretPriority, hidePriority, 1 << 30}

// addMissing adds exact rules for uses that the policy does not permit.
func (l *learner) addMissing(p *policy.Policy, drafts []*draft) ([]*draft, bool) {
	known := map[vpath.Path]*draft{}
	for _, d := range drafts {
		if d.item != nil && d.item.shape == exact {
			known[d.item.dir] = d
		}
	}
	changed := false
	for _, n := range l.asked {
		if n.unsayable || permits(p, &n.use, n.asked) {
			continue
		}
		n.need = n.asked
		d := known[n.path]
		if d == nil {
			drafts = append(drafts, l.draft(single(n)))
			changed = true
			continue
		}
		i := slices.IndexFunc(priorities, func(q int32) bool { return q > d.rule.Priority })
		if i >= 0 && d.rule.Type != policy.Directory {
			d.rule.Priority, changed = priorities[i], true
		}
	}
	return drafts, changed
}

const cannotSay = "not permitted, because no rule of a file can say it: "

// describe says what the policy does not permit, and which secrets it hides.
func (l *learner) describe(p *policy.Policy) {
	for _, n := range l.asked {
		if !permits(p, &n.use, n.asked) {
			l.out.Notes = append(l.out.Notes, cannotSay+n.path.String())
		}
	}
	for _, path := range l.own {
		if d := p.Decide(path); !d.Own && d.Permission < policy.Write {
			l.out.Notes = append(l.out.Notes, "not permitted: the command made its own "+path.String()+", which is hidden. To permit it, make its directory writable.")
		}
	}
	for _, s := range l.in.Secrets {
		switch d := p.Decide(s.Path); {
		case d.Permission > policy.View:
			l.out.Notes = append(l.out.Notes, "careful: the command used "+s.Path.String()+", which may hold a secret: "+s.Reason)
		case d.Permission == policy.None && len(l.out.Expect) < maxExpect:
			l.out.Expect = append(l.out.Expect, s)
		}
	}
}

// maxExpect is how many secrets are expected to stay hidden.
const maxExpect = 20
