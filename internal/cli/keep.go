package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// How many paths the summary names of what was kept, and of what waits.
const (
	keptNames = 6
	waitLines = 6
)

func newKeep(e *env) *cobra.Command {
	return &cobra.Command{
		Use:         local.KeepVerb + " NAME",
		Hidden:      true,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{annotationInside: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error {
				e.keep(ctx, b, args[0])
				return nil
			})
		},
	}
}

// keepNote says what apply: keep of a rule means; "" for a rule without.
func keepNote(r policy.Rule) string {
	switch {
	case !r.Keep:
		return ""
	case r.Keys != "":
		return ", apply: keep, so these keys are applied without a review: " + vpath.Escape(strings.Join(r.Keys.List(), ", "))
	}
	return ", apply: keep, so changes are applied without a review"
}

// keysNote says of which keys a rule with apply: keep is; "" for one of whole files.
func keysNote(r policy.Rule) string {
	if r.Keys == "" {
		return ""
	}
	return "; of a JSON file only these keys: " + vpath.Escape(strings.Join(r.Keys.List(), ", "))
}

// keep applies what rules with apply: keep match now that a command has ended, and says what was
// applied and what waits. What cannot be applied stays in the sandbox, so no error ends the
// caller.
func (e *env) keep(ctx context.Context, b backend.Backend, name string) {
	list, err := b.Keep(context.WithoutCancel(ctx), name)
	if doneElsewhere(err) == nil {
		err = nil
	}
	for _, k := range list {
		if k.Busy {
			e.say("other commands run, so what rules with apply: keep match waits for the end of the last one")
			continue
		}
		if k.Note != "" {
			e.say("rules with apply: keep: %s", k.Note)
		}
		e.sayKept(k)
	}
	if err != nil {
		e.say("rules with apply: keep: %s; what they match stays in the sandbox: the end of the next command tries again", oneLine(err))
	}
}

// sayKept says what was kept in the workspace or a mount, and what waits.
func (e *env) sayKept(k backend.Kept) {
	var names []string
	for _, p := range k.Kept {
		text := present.WrittenIn(k.Mount, p.Path)
		if len(p.Keys) > 0 {
			text += " (" + fewNames(p.Keys) + ")"
		}
		names = append(names, text)
	}
	if len(names) > 0 {
		e.say("kept, as apply: keep says: %s", fewNames(names))
	}
	for i, p := range k.Waits {
		if i == waitLines-1 && len(k.Waits) > waitLines {
			e.say("… and %d more paths wait in spite of apply: keep", len(k.Waits)-i)
			break
		}
		keys := ""
		if len(p.Keys) > 0 {
			keys = " (" + fewNames(p.Keys) + ")"
		}
		e.say("not kept: %s%s: %s", present.WrittenIn(k.Mount, p.Path), keys, p.Why)
	}
}

// fewNames are names in a sentence.
func fewNames(names []string) string {
	if more := len(names) - keptNames; more > 0 {
		return strings.Join(names[:keptNames], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
