package service

import (
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/supervise"
)

// wireKind is a kind of change on the wire.
var wireKind = map[supervise.ChangeKind]sandboxv1.ChangeKind{
	supervise.Created:  sandboxv1.ChangeKind_CHANGE_KIND_CREATED,
	supervise.Modified: sandboxv1.ChangeKind_CHANGE_KIND_MODIFIED,
	supervise.Deleted:  sandboxv1.ChangeKind_CHANGE_KIND_DELETED,
	supervise.Renamed:  sandboxv1.ChangeKind_CHANGE_KIND_RENAMED,
}

// withoutRules returns the effects as a caller may know them who may not know
// the policy: what was refused, but not by which pattern.
func withoutRules(e supervise.Effects) supervise.Effects {
	e.Denied = slices.Clone(e.Denied)
	for i := range e.Denied {
		e.Denied[i].Rule = ""
	}
	return e
}

func wireDenied(list []supervise.Denied) []*sandboxv1.Denial {
	var wire []*sandboxv1.Denial
	for _, d := range list {
		wire = append(wire, &sandboxv1.Denial{
			Path: d.Path, Operation: d.Operation, Permission: wirePermission[d.Permission],
			Rule: d.Rule, RuleIndex: int32(d.RuleIndex), Pid: int32(d.PID), Program: d.Program, Count: d.Count,
		})
	}
	return wire
}

func wireChanged(list []supervise.Changed) []*sandboxv1.FileChange {
	var wire []*sandboxv1.FileChange
	for _, c := range list {
		wire = append(wire, &sandboxv1.FileChange{Path: c.Path, Kind: wireKind[c.Kind], OldPath: c.From})
	}
	return wire
}
