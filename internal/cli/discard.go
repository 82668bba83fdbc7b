package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

func newDiscard(e *env) *cobra.Command {
	var o discardOptions
	cmd := &cobra.Command{
		Use:   "discard NAME [PATH…]",
		Short: "Throw a sandbox's changes away",
		Long: `Throw a sandbox's changes away, or those at and below the given paths. The source
is not touched; the sandbox then sees it there again. What a review shows in groups
is listed so, after the rest; --verbose lists each path.`,
		Example: `  agentfense discard fix src/main.go
  agentfense discard fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = onChanges(e, &o, runDiscard, runServerDiscard, "dry-run", "json", "verbose")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be thrown away")
	cmd.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "list each path, also those in groups")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

type discardOptions struct {
	DryRun  bool
	Verbose bool
	JSON    bool
}

func runDiscard(ctx context.Context, e *env, name string, paths []vpath.Path, o discardOptions) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if done, err := e.asOwner(ctx, sb, e.args); done || err != nil {
		return err
	}
	drop, err := api.DropLive(ctx, sb.Dir())
	if err != nil {
		return err
	}
	waiting := e.progressUnless(o.JSON, "discarding")
	list := listOf(review.Open(sb, paths...))
	result, err := apply.Discard(sb, apply.DiscardOptions{Paths: paths, DryRun: o.DryRun, Drop: drop})
	waiting.stop()
	return e.tellDiscarded(list, result, err, o)
}

func runServerDiscard(ctx context.Context, e *env, s backend.Server, name string, paths []vpath.Path, o discardOptions) error {
	sb, err := s.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	list := listOf(s.Review(ctx, sb, paths, true, ""))
	result, err := s.Discard(ctx, string(sb.Record.ID), paths, o.DryRun)
	return e.tellDiscarded(list, result, err, o)
}

// discardList is what changed before a discard, as a review shows it.
type discardList struct {
	files  []review.FileDiff
	groups []review.Group
}

// listOf takes the list from a review. Without one the paths are listed as they are:
// what cannot be shown can be thrown away all the same.
func listOf(r *review.Review, err error) discardList {
	if err != nil {
		return discardList{}
	}
	list := discardList{r.Files(), r.Groups()}
	_ = r.Close() // it only read
	return list
}

// tellDiscarded says what was thrown away, unless err says more.
func (e *env) tellDiscarded(list discardList, result apply.DiscardResult, err error, o discardOptions) error {
	if err != nil {
		return err
	}
	single, groups := list.of(result.Paths)
	if o.JSON {
		return e.printJSON(struct {
			SchemaVersion int                 `json:"schema_version"`
			DryRun        bool                `json:"dry_run"`
			Paths         []string            `json:"paths"`
			WrittenAgain  []string            `json:"written_again,omitempty"`
			Groups        []present.JSONGroup `json:"groups,omitempty"`
		}{present.Version, o.DryRun, escaped(result.Paths), escaped(result.Changed), present.JSONGroups(groups)})
	}
	lines := append(escaped(single), groupLines(groups)...)
	if o.Verbose {
		lines = escaped(result.Paths)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(e.stdout, line); err != nil {
			return err
		}
	}
	e.sayWrittenAgain(result.Changed)
	verb := "discarded"
	if o.DryRun {
		verb = "would discard"
	}
	e.say("%s %s", verb, plural(len(result.Paths), "change"))
	return nil
}

// of takes the discarded paths apart: those that are listed one by one, in the order
// of the list, and the groups of the others.
func (l discardList) of(paths []vpath.Path) (single []vpath.Path, groups []review.Group) {
	left := map[vpath.Path]int{} // an own entry has the path of what it covers
	for _, p := range paths {
		left[p]++
	}
	var inGroups []review.FileDiff
	for _, f := range l.files {
		if left[f.Path] == 0 {
			continue
		}
		left[f.Path]--
		if f.Group == "" {
			single = append(single, f.Path)
		} else {
			inGroups = append(inGroups, f)
		}
	}
	for _, p := range paths { // changed since
		for ; left[p] > 0; left[p]-- {
			single = append(single, p)
		}
	}
	lines := map[string][]string{}
	for _, g := range l.groups {
		lines[g.Name] = g.Lines
	}
	return single, review.GroupsOf(inGroups, func(name string) []string { return lines[name] })
}

func (e *env) sayWrittenAgain(paths []vpath.Path) {
	for _, p := range paths {
		e.say("%s was written again meanwhile; the later version is still in the sandbox", shown(p))
	}
}

// escaped returns paths as JSON has them.
func escaped(paths []vpath.Path) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = shown(p)
	}
	return out
}
