package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// mergeOptions are the flags that resolve conflicts in texts.
type mergeOptions struct{ Ours, Theirs, Markers bool }

func (o *mergeOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Ours, "ours", false, "where the source and the sandbox changed the same lines, take the source's")
	f.BoolVar(&o.Theirs, "theirs", false, "where the source and the sandbox changed the same lines, take the sandbox's")
	f.BoolVar(&o.Markers, "markers", false, "where the source and the sandbox changed the same lines, place both between conflict markers")
	cmd.MarkFlagsMutuallyExclusive("ours", "theirs", "markers")
	for _, flag := range []string{"ours", "theirs", "markers"} {
		for _, other := range []string{"to-branch", "attest"} {
			cmd.MarkFlagsMutuallyExclusive(flag, other)
		}
	}
}

// onConflict is what the flags ask for.
func (o *mergeOptions) onConflict() apply.OnConflict {
	switch {
	case o.Ours:
		return apply.Ours
	case o.Theirs:
		return apply.Theirs
	case o.Markers:
		return apply.Markers
	}
	return apply.Merge
}

// sayApplyConflicts says what to do about conflicts. canMerge is false if the apply does not take
// the flags that decide them.
func (e *env) sayApplyConflicts(ref string, result *apply.Result, canMerge bool) {
	if result.Count(apply.Conflict) == 0 {
		return
	}
	e.say("to look at a conflict: agentfense diff %[1]s PATH · to apply the other paths, name them · to drop a conflict: agentfense discard %[1]s PATH", ref)
	for _, p := range result.Paths {
		if canMerge && p.Kind == apply.Text {
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
func (o *mergeOptions) sayMarkers(e *env, result *apply.Result) {
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
