package policy

import "github.com/agentfense/agentfense/internal/vpath"

// State is a policy's evaluation at one directory. From it a child is decided
// in one step, whatever the depth: keep it beside a directory's node, and make
// it anew when the policy is replaced. The zero State is of no use.
type State struct {
	policy  *Policy
	nodes   []*node
	verdict verdict
	spot    spot
}

// spot tells the paths that are treated specially.
type spot uint8

const (
	spotOrdinary spot = iota
	spotRoot
	spotProjectFile
)

func spotOf(path vpath.Path) spot {
	switch path {
	case vpath.Root, "":
		return spotRoot
	case ProjectFile:
		return spotProjectFile
	}
	return spotOrdinary
}

// child returns the spot of the entry name.
func (s spot) child(name string) spot {
	if s == spotRoot && name == string(ProjectFile[1:]) {
		return spotProjectFile
	}
	return spotOrdinary
}

func (p *Policy) startState() State {
	nodes := enter(nil, nil, p.root)
	return State{policy: p, nodes: nodes, verdict: judge(nodes, grant{}), spot: spotRoot}
}

// At returns the evaluation at dir.
func (p *Policy) At(dir vpath.Path) State {
	nodes, v := p.walk(dir, nil, nil)
	return State{policy: p, nodes: nodes, verdict: v, spot: spotOf(dir)}
}

// Policy returns the policy that the state evaluates.
func (s State) Policy() *Policy { return s.policy }

// Decision is Decide for the directory.
func (s State) Decision() Decision { return s.policy.decision(s.nodes, s.verdict, s.spot) }

// Child returns the evaluation at the entry name of the directory. The caller
// has checked name, see vpath.CheckName.
func (s State) Child(name string) State {
	var a [32]*node
	nodes := advance(a[:0], s.nodes, name)
	return State{
		policy:  s.policy,
		nodes:   append([]*node(nil), nodes...),
		verdict: judge(nodes, s.verdict.none),
		spot:    s.spot.child(name),
	}
}

// DecideChild is Decide for the entry name of the directory. It allocates
// nothing unless dozens of patterns go on from there.
func (s State) DecideChild(name string) Decision {
	var a [32]*node
	nodes := advance(a[:0], s.nodes, name)
	return s.policy.decision(nodes, judge(nodes, s.verdict.none), s.spot.child(name))
}

// ChildWritable is Policy.ChildWritable for the directory.
func (s State) ChildWritable() bool { return childWritable(s.nodes, s.verdict) }
