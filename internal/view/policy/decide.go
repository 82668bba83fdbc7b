package policy

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ProjectFile is the policy file that a project brings along. It is never
// writable from inside, whatever the rules say and also while it does not
// exist: a sandbox must not write its own next policy.
const ProjectFile vpath.Path = "/.agentfense.yaml"

// Decision is what a policy says of one path.
type Decision struct {
	// Permission is None too where only Traversable makes a directory visible.
	Permission Permission
	// Traversable is meaningful where Permission is None: if the path is a
	// directory it shows as View, because something below it may be granted.
	Traversable bool
	// Own is meaningful where Permission is None: a program may make an entry of
	// its own at the path, whatever the source has there.
	Own bool
	// Transform is meaningful where Permission is Read: what a regular file shows in place
	// of its content.
	Transform Transform
	// Locked says that the rules permit Write, and that a Lock permits Read.
	Locked bool
	// Rule is the index of the deciding rule in Policy.Rules, or NoRule.
	Rule int
	// Reason says it for people: the rule and where it comes from.
	Reason string
}

// ForDir returns the permission a directory shows: View when it is traversable.
func (d Decision) ForDir() Permission {
	if d.Permission == None && d.Traversable {
		return View
	}
	return d.Permission
}

const (
	reasonDefault  = "no rule matches: default deny"
	reasonReserved = "reserved for agentfense itself"
	reasonPlace    = "another mount is here"
	reasonOwn      = "made by the sandbox where the policy hides what the source has"
)

// ReasonProject is the reason of a decision on ProjectFile that no rule can widen.
const ReasonProject = "the policy file is never writable from inside"

// Decide returns what p permits at path. It never fails: a path no rule matches
// is None. It does not touch the file system, and may be called concurrently.
// It allocates nothing unless dozens of patterns go on from one directory, but for
// the reason of a rule that decides for the first time.
//
// An own entry (vpath.Path.IsOwn) and all below it is Write as long as the
// directory it lies in shows.
//
// In a loop over a directory's entries State.DecideChild is cheaper.
func (p *Policy) Decide(path vpath.Path) Decision {
	if own := path.OwnRoot(); own != "" {
		return p.lockOf(path).narrow(p.decideOwn(own))
	}
	var a, b [32]*node
	nodes, v := p.walk(path, a[:0], b[:0])
	d := p.decision(nodes, v, pathKindOf(path))
	if d.Own {
		d.Own = p.mayMakeIn(path.Dir())
	}
	if p.locks != nil {
		d = p.lockOf(path).narrow(d)
	}
	return d
}

// decideOwn is Decide for an own entry and what is below it.
func (p *Policy) decideOwn(own vpath.Path) Decision {
	if d := p.Decide(own.Dir()); d.ForDir() == None {
		return d
	}
	return ownDecision
}

var ownDecision = Decision{Permission: Write, Rule: NoRule, Reason: reasonOwn}

// mayMakeIn reports whether the directory may be written, as far as that goes
// for any name.
func (p *Policy) mayMakeIn(dir vpath.Path) bool {
	var a, b [32]*node
	nodes, v := p.walk(dir, a[:0], b[:0])
	return mayMake(nodes, v)
}

func mayMake(nodes []*node, v verdict) bool {
	if v.permission() == Write {
		return true
	}
	var a [32]*node
	return judge(advance(a[:0], nodes, ""), v.none).permission() == Write
}

// walk evaluates path. It uses the buffers while they are large enough.
func (p *Policy) walk(path vpath.Path, a, b []*node) ([]*node, verdict) {
	nodes, next := append(a, p.start.nodes...), b
	v := p.start.verdict
	for rest := string(path); rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		if name == "" {
			continue
		}
		next = advance(next[:0], nodes, name)
		nodes, next = next, nodes
		v = judge(nodes, v.none)
	}
	return nodes, v
}

// verdict is the outcome of the rules at one path.
type verdict struct {
	own  grant // what the path's own winning rule permits; zero: no rule
	rule grant // the highest-ranking rule apart from widening flags
	flag grant // the highest-ranking widening flag
	none grant // the highest-ranking none-rule that wins here or at an ancestor
}

// judge finds the winner among the rules that end at nodes, none being the
// highest-ranking none-rule that wins at an ancestor.
func judge(nodes []*node, none grant) verdict {
	v := verdict{none: none}
	for _, n := range nodes {
		v.rule = higher(v.rule, n.end)
		v.flag = higher(v.flag, n.flag)
	}
	v.own = v.rule
	switch {
	case v.flag.rank == 0 || v.rule.rank.standing() > standsRule:
	case v.rule.rank == 0:
		v.own = v.flag
	case v.rule.permission != None:
		v.own.permission, v.own.rule, v.own.transform = v.flag.permission, v.flag.rule, 0
	}
	if v.own.permission == None && v.own.rank >= none.rank {
		v.none = v.own
	}
	return v
}

// permission is what the verdict comes to, inheritance of none included.
func (v verdict) permission() Permission {
	if v.none.rank > v.own.rank {
		return None
	}
	return v.own.permission
}

func (p *Policy) decision(nodes []*node, v verdict, kind pathKind) Decision {
	permission := v.permission()
	if permission != None && v.own.rule == NoRule {
		return Decision{Permission: permission, Rule: NoRule, Reason: reasonPlace}
	}
	if permission != None {
		d := Decision{Permission: permission, Rule: int(v.own.rule), Reason: p.text(int(v.own.rule)).own}
		if kind == pathProjectFile && permission == Write {
			d.Permission, d.Reason = Read, ReasonProject
		}
		if p.transforms && d.Permission == Read && d.Rule >= 0 {
			d.Transform = p.rules[d.Rule].Transform
		}
		return d
	}
	d := Decision{Rule: NoRule, Reason: reasonDefault, Traversable: kind == pathRoot}
	if v.none.rank != 0 {
		d.Rule = int(v.none.rule)
		d.Own = v.none.own && kind == pathOrdinary
		switch {
		case d.Rule == NoRule:
			d.Reason = reasonReserved
		case v.none == v.own:
			d.Reason = p.text(d.Rule).own
		default:
			d.Reason = p.text(d.Rule).inherited
		}
	}
	for _, n := range nodes {
		if n.below.grant.rank > v.none.rank {
			d.Traversable = true
			break
		}
	}
	return d
}

// ChildWritable reports whether some child of dir, existing or not, could be
// Write: then the directory shows its w bit. It may err on the side of yes.
func (p *Policy) ChildWritable(dir vpath.Path) bool {
	if dir.IsOwn() {
		return p.Decide(dir).Permission == Write
	}
	var a, b [32]*node
	nodes, v := p.walk(dir, a[:0], b[:0])
	return !p.lockOf(dir).coversChildren() && p.childWritable(nodes, v)
}

func (p *Policy) childWritable(nodes []*node, v verdict) bool {
	if p.own && v.permission() == Write {
		return true // own entries can be made in it
	}
	// A child whose name no literal and no glob matches.
	var a [32]*node
	other := judge(advance(a[:0], nodes, ""), v.none)
	if other.permission() == Write {
		return true
	}
	// Then a narrower rule must win over what all children have in common.
	floor := max(other.none.rank, other.rule.rank)
	var narrow reach
	for _, n := range nodes {
		narrow.merge(n.next)
	}
	switch {
	case narrow.write.rank > floor:
		return true
	case narrow.writeFlag.rank != 0 && other.permission() != None:
		return true
	}
	flag := narrow.writeFlag.rank != 0 || other.flag.permission == Write
	return flag && narrow.grant.rank > floor
}

// MayMkdir reports whether mkdir is allowed at path if nothing is there: path
// is Write, or no rule says none there and it is an ancestor of a path that
// some rule may make Write.
func (p *Policy) MayMkdir(path vpath.Path) bool {
	switch {
	case p.lockOf(path).coversMkdir():
		return false
	case path.IsOwn():
		return p.Decide(path).Permission == Write
	}
	return p.mayMkdir(path)
}

// mayMkdir is MayMkdir without the locks, of a path that is no own entry.
func (p *Policy) mayMkdir(path vpath.Path) bool {
	var a, b [32]*node
	nodes, v := p.walk(path, a[:0], b[:0])
	if path == ProjectFile {
		return false
	}
	permission := v.permission()
	if permission == Write {
		return true
	}
	if permission == None && v.none.rank != 0 {
		return false
	}
	var below reach
	var cover, flag grant // the highest-ranking rule and flag that match everything below
	for _, n := range nodes {
		below.merge(n.below)
		if n.loops {
			cover, flag = higher(cover, n.end), higher(flag, n.flag)
		}
	}
	wins := func(g grant) bool { return g.rank > v.none.rank && g.rank >= cover.rank }
	if below.writeFlag.rank != 0 && below.writeFlag.rank >= flag.rank && wins(below.grant) {
		return true
	}
	// A flag takes the place of any rule but those that stand above all rules.
	replaced := flag.rank != 0 && flag.permission != Write && below.write.rank.standing() <= standsRule
	return wins(below.write) && !replaced
}
