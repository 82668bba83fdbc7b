package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

// registerConflicts adds the flags that decide conflicts to apply. None of them goes with a commit
// or with a statement.
func (o *applyOptions) registerConflicts(cmd *cobra.Command) {
	o.conflictOptions.register(cmd,
		"where the source and the sandbox changed the same lines, take the source's",
		"where the source and the sandbox changed the same lines, take the sandbox's",
		"where the source and the sandbox changed the same lines, place both between conflict markers")
	for _, flag := range conflictFlags {
		for _, other := range []string{"to-branch", "attest"} {
			cmd.MarkFlagsMutuallyExclusive(flag, other)
		}
	}
}

// sayApplyConflicts says what to do about conflicts. canMerge is false if the apply does not take
// the flags that decide them.
func (e *env) sayApplyConflicts(ref string, result *apply.Result, canMerge bool) {
	if result.Count(apply.Conflict) == 0 {
		return
	}
	e.say("to look at a conflict: agentfense diff %[1]s PATH · to apply the other paths, name them · to drop a conflict: agentfense discard %[1]s PATH", ref)
	for _, p := range result.Paths {
		if canMerge && p.Kind == conflict.Text {
			e.say("to merge, and decide which lines to take where both changed them: agentfense apply %s with --ours (the source's), --theirs (the sandbox's) or --markers (both)", ref)
			return
		}
	}
}

// mergedNote counts the changes of a result that were merged.
func mergedNote(result *apply.Result) string {
	n := 0
	for _, p := range result.Listed() {
		if p.Merged {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them merged with what changed in the source", n)
}

// sayMarkers says in how many files an apply has placed markers.
func (o *conflictOptions) sayMarkers(e *env, result *apply.Result) {
	if !o.Markers {
		return
	}
	n := 0
	for _, p := range result.Paths {
		if p.Merged && p.Conflicts > 0 {
			n++
		}
	}
	if n > 0 {
		e.say("%s with conflict markers: look for lines that begin with <<<<<<<", plural(n, "file"))
	}
}
