package policy

import "github.com/agentfense/agentfense/internal/lib/vpath"

// State is a policy's evaluation at one directory. From it a child is decided
// in one step, whatever the depth: keep it beside a directory's node, and make
// it anew when the policy is replaced. The zero State is of no use.
type State struct {
	policy  *Policy
	nodes   []*node
	verdict verdict
	kind    pathKind
	own     bool // the directory is an own entry, or lies below one
	lock    lockState
}

// pathKind tells the paths that are treated specially.
type pathKind uint8

const (
	pathOrdinary pathKind = iota
	pathRoot
	pathProjectFile
)

func pathKindOf(path vpath.Path) pathKind {
	switch path {
	case vpath.Root, "":
		return pathRoot
	case ProjectFile:
		return pathProjectFile
	}
	return pathOrdinary
}

// child returns the kind of the entry name.
func (s pathKind) child(name string) pathKind {
	if s == pathRoot && name == string(ProjectFile[1:]) {
		return pathProjectFile
	}
	return pathOrdinary
}

func (p *Policy) startState() State {
	nodes := enter(nil, nil, p.root)
	return State{policy: p, nodes: nodes, verdict: judge(nodes, grant{}), kind: pathRoot}
}

// At returns the evaluation at dir.
func (p *Policy) At(dir vpath.Path) State {
	if own := dir.OwnRoot(); own != "" {
		if above := p.At(own.Dir()); above.Decision().ForDir() == None {
			return above
		}
		return State{policy: p, own: true, lock: p.lockOf(dir)}
	}
	nodes, v := p.walk(dir, nil, nil)
	return State{policy: p, nodes: nodes, verdict: v, kind: pathKindOf(dir), lock: p.lockOf(dir)}
}

// Policy returns the policy that the state evaluates.
func (s State) Policy() *Policy { return s.policy }

// Decision is Decide for the directory, without Decision.Own.
func (s State) Decision() Decision {
	if s.own {
		return s.lock.narrow(ownDecision)
	}
	return s.lock.narrow(s.policy.decision(s.nodes, s.verdict, s.kind))
}

// IsOwn reports whether the directory is an own entry or lies below one, so that
// all in it is.
func (s State) IsOwn() bool { return s.own }

// Child returns the evaluation at the entry name of the directory. The caller
// has checked name, see vpath.CheckName.
func (s State) Child(name string) State {
	if s.own || vpath.IsOwnName(name) {
		return State{policy: s.policy, own: true, lock: s.lock.child(name)}
	}
	var a [32]*node
	nodes := advance(a[:0], s.nodes, name)
	return State{
		policy:  s.policy,
		nodes:   append([]*node(nil), nodes...),
		verdict: judge(nodes, s.verdict.none),
		kind:    s.kind.child(name),
		lock:    s.lock.child(name),
	}
}

// DecideChild is Decide for the entry name of the directory. It allocates
// nothing unless dozens of patterns go on from there.
func (s State) DecideChild(name string) Decision {
	var a [32]*node
	lock := s.lock.child(name)
	if s.own || vpath.IsOwnName(name) {
		return lock.narrow(ownDecision)
	}
	nodes := advance(a[:0], s.nodes, name)
	d := s.policy.decision(nodes, judge(nodes, s.verdict.none), s.kind.child(name))
	if d.Own {
		d.Own = mayMake(s.nodes, s.verdict)
	}
	return lock.narrow(d)
}

// ChildWritable is Policy.ChildWritable for the directory.
func (s State) ChildWritable() bool {
	return !s.lock.coversChildren() && (s.own || s.policy.childWritable(s.nodes, s.verdict))
}
