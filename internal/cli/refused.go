package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// untold stands for a rule that decided, of which the token may not know more.
const untold = "a rule that this token may not see"

// sayRefused says, on stderr, what one command in a sandbox was refused, and how to
// allow it there. It says nothing where nothing was refused.
func (e *env) sayRefused(home *record.Home, sb *record.Sandbox, exit api.Exit) {
	if len(exit.Denied) == 0 {
		return
	}
	var refusals []audit.PermissionDenied
	for _, d := range exit.Denied {
		refusals = append(refusals, audit.PermissionDenied{
			Path: audit.Path("/" + vpath.DecodeText(d.Path)), Operation: d.Operation, Permission: d.Permission.String(),
			Rule: audit.Text(vpath.DecodeText(d.Rule)), RuleIndex: d.RuleIndex, Count: int(d.Count),
		})
	}
	var changed []vpath.Path
	for _, c := range exit.Changed {
		changed = append(changed, vpath.Path("/"+vpath.DecodeText(c.Path)))
	}
	now, err := home.Open(sb.Name()) // its policy may have been replaced meanwhile
	if err != nil {
		now = sb
	}
	r := now.Record()
	reserved, err := home.Reserved(r.Source)
	e.tellRefused(sb.Name(), refusals, changed, err == nil, r.Rules, reserved, local.IsDirBelow(string(r.Source.Path)))
}

// sayRefusedOnServer is sayRefused of a server's sandbox.
func (e *env) sayRefusedOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox, exit backend.Exit) {
	if len(exit.Refused) == 0 {
		return
	}
	now, err := s.Raw().Sandbox(ctx, string(sb.Record.ID))
	if err != nil {
		now = sb
	}
	e.tellRefused(sb.Record.Name, exit.Refused, exit.Touched, err == nil, now.Record.Rules, nil, isDirOfCodebase(ctx, s, sb.Record.Served.CodebaseID))
}

// tellRefused prints the refusals, and the advice if all that it depends on is known.
func (e *env) tellRefused(name string, refusals []audit.PermissionDenied, changed []vpath.Path, isKnown bool, rules []policy.Rule, reserved []vpath.Path, isDir func(string) bool) {
	for i := range refusals {
		r := &refusals[i]
		switch {
		case r.RuleIndex < 0:
		case r.Rule == "":
			r.RuleSource, isKnown = untold, false
		case r.RuleIndex < len(rules) && secretname.Written(rules[r.RuleIndex].Pattern) == secretname.Written(string(r.Rule)):
			r.RuleSource = audit.Text(rules[r.RuleIndex].Source)
		}
	}
	sum := present.RefusedTo(refusals, changed)
	e.printDenials(sum.Denials, summaryLines)
	if isKnown {
		e.sayLines(advice(sum.Refused, rules, reserved, isDir, widening(name)))
	}
}
