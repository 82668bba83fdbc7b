package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

func newCreate(e *env) *cobra.Command {
	var o sandboxOptions
	cmd := &cobra.Command{
		Use:   "create [NAME] [flags]",
		Short: "Make a sandbox without running anything in it",
		Long: `Make a sandbox without running anything in it, and print its name: NAME, or what
--name says, or a generated one.`,
		Example: `  agentfense create fix --preset development --hide '*.sqlite'
  agentfense exec fix -- make test`,
		Args: cobra.MaximumNArgs(1),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if o.Name != "" {
				return usageError{errdefs.New(errdefs.Invalid, "create: %s and --name %s name the sandbox twice", vpath.Quote(args[0]), vpath.Quote(o.Name))}
			}
			o.Name = args[0]
			if err := record.CheckName(o.Name); err != nil {
				return err
			}
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runCreate(ctx, e, cmd, b, o) })
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.Name, "name", "", "name of the sandbox, as NAME (default: a generated one)")
	return cmd
}

func runCreate(ctx context.Context, e *env, cmd *cobra.Command, b backend.Backend, o sandboxOptions) error {
	env, err := o.addToolchains(ctx, e, cmd, b, nil)
	if err != nil {
		return err
	}
	n, err := o.described(cmd, b, false, env)
	if err != nil {
		return err
	}
	if o.Name != "" {
		if _, err := b.Sandbox(ctx, o.Name); err == nil {
			return errdefs.New(errdefs.Exists, "sandbox %s: exists already", o.Name)
		}
	}
	sb, err := o.create(ctx, e, cmd, b, n)
	if err == nil {
		err = e.sayUnshown(ctx, b, sb)
	}
	if err == nil {
		look := startGitLook(ctx, b, sb)
		defer look.end()
		err = look.tell(e, gitPatience)
	}
	if err != nil {
		return err
	}
	e.sayPublished(sb)
	_, err = fmt.Fprintln(e.stdout, sb.Record.Name)
	return err
}
