package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/supervise"
	"github.com/agentfense/agentfense/internal/vpath"
)

func newDiscard(e *env) *cobra.Command {
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "discard NAME [PATH…]",
		Short: "Throw a sandbox's changes away",
		Long: `Throw a sandbox's changes away, or those at and below the given paths. The source
is not touched; the sandbox then sees it there again.`,
		Example: `  agentfense discard fix src/main.go
  agentfense discard fix`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		paths, err := changedPaths(args[1:])
		if err != nil {
			return err
		}
		return e.either(cmd,
			func() error { return runDiscard(cmd.Context(), e, args[0], paths, dryRun, asJSON) },
			func(ctx context.Context, s control.Server) error {
				sb, err := s.Sandbox(ctx, args[0])
				if err != nil {
					return err
				}
				result, err := s.Discard(ctx, string(sb.Record.ID), paths, dryRun)
				return e.tellDiscarded(result, err, dryRun, asJSON)
			}, "dry-run", "json")
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be thrown away")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func runDiscard(ctx context.Context, e *env, name string, paths []vpath.Path, dryRun, asJSON bool) error {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	if done, err := e.asOwner(ctx, sb, e.args); done || err != nil {
		return err
	}
	drop, err := dropLive(ctx, sb)
	if err != nil {
		return err
	}
	waiting := e.progressUnless(asJSON, "discarding")
	result, err := sb.Discard(sandbox.DiscardOptions{Paths: paths, DryRun: dryRun, Drop: drop})
	waiting.stop()
	return e.tellDiscarded(result, err, dryRun, asJSON)
}

// tellDiscarded says what was thrown away, unless err says more.
func (e *env) tellDiscarded(result sandbox.DiscardResult, err error, dryRun, asJSON bool) error {
	if err != nil {
		return err
	}
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int      `json:"schema_version"`
			DryRun        bool     `json:"dry_run"`
			Paths         []string `json:"paths"`
			WrittenAgain  []string `json:"written_again,omitempty"`
		}{sandbox.ReviewVersion, dryRun, escaped(result.Paths), escaped(result.Changed)})
	}
	for _, p := range result.Paths {
		if _, err := fmt.Fprintln(e.stdout, shown(p)); err != nil {
			return err
		}
	}
	e.sayWrittenAgain(result.Changed)
	verb := "discarded"
	if dryRun {
		verb = "would discard"
	}
	e.say("%s %s", verb, plural(len(result.Paths), "change"))
	return nil
}

// dropLive returns what tells a live supervisor to forget entries of the
// delta, nil if the sandbox does not run.
func dropLive(ctx context.Context, sb *sandbox.Sandbox) (func([]sandbox.Version) ([]vpath.Path, error), error) {
	c, err := supervise.Reach(ctx, sb.Dir())
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func(v []sandbox.Version) ([]vpath.Path, error) { return c.Drop(ctx, v) }, nil
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
