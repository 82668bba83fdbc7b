package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

func newDiscard(e *env) *cobra.Command {
	var o discardOptions
	var w whichChanges
	cmd := &cobra.Command{
		Use:   "discard NAME [PATH…]",
		Short: "Throw a sandbox's changes away",
		Long: `Throw a sandbox's changes away, or those at and below the given paths. The source
does not change, and the sandbox then sees its files at these paths again. Groups of
a review are listed as groups, after the other changes; --verbose lists each path.

What was changed in a mount is thrown away with --in MOUNT, and with --all that of the
workspace and of each mount. With --json, --all prints one document for each.

On a terminal it lists what it is about to throw away and asks.`,
		Example: `  agentfense discard fix src/main.go
  agentfense discard fix
  agentfense discard fix --in data`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = onChanges(e, &w, &o, runDiscard)
	w.register(e, cmd, "throw away")
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only say what would be thrown away")
	cmd.Flags().BoolVarP(&o.Yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "list each path, also those in groups")
	jsonFlag(cmd, &o.JSON)
	return cmd
}

type discardOptions struct {
	DryRun  bool
	Yes     bool
	Verbose bool
	JSON    bool
}

func runDiscard(ctx context.Context, e *env, c changesIn, paths []vpath.Path, o discardOptions) error {
	if err := e.confirmDiscard(ctx, c, paths, o); err != nil {
		return err
	}
	p := e.progressUnless(o.JSON, "discarding")
	result, err := c.Discard(ctx, paths, o.DryRun)
	p.stop()
	if err != nil {
		return err
	}
	if o.JSON {
		_, groups := listDiscarded(result)
		return e.printJSON(struct {
			SchemaVersion int                 `json:"schema_version"`
			Mount         string              `json:"mount,omitempty"`
			DryRun        bool                `json:"dry_run"`
			Paths         []string            `json:"paths"`
			WrittenAgain  []string            `json:"written_again,omitempty"`
			Groups        []present.JSONGroup `json:"groups,omitempty"`
		}{present.Version, c.mount, o.DryRun, escaped(result.Paths), escaped(result.Changed), present.JSONGroups(groups)})
	}
	for _, line := range discardLines(c, result, o.Verbose) {
		if _, err := fmt.Fprintln(e.stdout, line); err != nil {
			return err
		}
	}
	e.sayWrittenAgain(c, result.Changed)
	verb := "discarded"
	if o.DryRun {
		verb = "would discard"
	}
	e.say("%s %s%s", verb, plural(len(result.Paths), "change"), c.where())
	return nil
}

// confirmDiscard shows on a terminal what a discard would throw away, and asks.
func (e *env) confirmDiscard(ctx context.Context, c changesIn, paths []vpath.Path, o discardOptions) error {
	if o.Yes || o.DryRun || !e.canAsk() {
		return nil
	}
	plan, err := c.Discard(ctx, paths, true)
	if err != nil || len(plan.Paths) == 0 {
		return err
	}
	for _, line := range discardLines(c, plan, o.Verbose) {
		e.say("  %s", line)
	}
	if !e.confirm(fmt.Sprintf("Discard %s%s?", plural(len(plan.Paths), "change"), c.where())) {
		return errdefs.New(errdefs.Canceled, "discard: nothing was discarded%s", c.where())
	}
	return nil
}

// discardLines lists what a discard throws away, for a person.
func discardLines(c changesIn, d backend.Discarded, verbose bool) []string {
	if verbose {
		return c.shownAll(d.Paths)
	}
	single, groups := listDiscarded(d)
	return append(c.shownAll(single), groupLines(groups)...)
}

// listDiscarded takes the discarded paths apart: those that are listed one by one, in
// the order of the review, and the groups of the others.
func listDiscarded(d backend.Discarded) (single []vpath.Path, groups []review.Group) {
	left := map[vpath.Path]int{} // an own entry has the path of what it covers
	for _, p := range d.Paths {
		left[p]++
	}
	var inGroups []review.FileDiff
	for _, f := range d.Files {
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
	for _, p := range d.Paths { // changed since
		for ; left[p] > 0; left[p]-- {
			single = append(single, p)
		}
	}
	lines := map[string][]string{}
	for _, g := range d.Groups {
		lines[g.Name] = g.Lines
	}
	return single, review.GroupsOf(inGroups, func(name string) []string { return lines[name] })
}

func (e *env) sayWrittenAgain(c changesIn, paths []vpath.Path) {
	for _, p := range paths {
		e.say("%s was written again meanwhile; the later version is still in the sandbox", c.shown(p))
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
