package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// untold stands for a rule that decided, of which the token may not know more.
const untold = "a rule that this token may not see"

// sayRefused says, on stderr, what one command in a sandbox was refused, and how to
// allow it there. It says nothing where nothing was refused.
func (e *env) sayRefused(ctx context.Context, b backend.Backend, sb backend.Sandbox, exit backend.Exit) {
	if len(exit.Refused) == 0 {
		return
	}
	now, err := b.Policy(ctx, sb.Ref()) // it may have been replaced meanwhile
	if err != nil {
		now = backend.Policy{Sandbox: sb}
	}
	e.tellRefused(sb.Record.Name, exit, now, err == nil)
}

// tellRefused prints the refusals, and the advice if all that it depends on is known.
func (e *env) tellRefused(name string, exit backend.Exit, now backend.Policy, isKnown bool) {
	refusals, rules := exit.Refused, now.Record.Rules
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
	sum := present.RefusedTo(refusals, exit.Touched)
	e.printDenials(sum.Denials, summaryLines)
	if isKnown {
		e.sayLines(advice(sum.Refused, rules, now.Reserved, now.IsDir, widening(name)))
		e.sayLines(mountAdvice(sum.RefusedMounts, now.Record))
	}
}
