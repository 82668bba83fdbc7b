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
		return e.dispatch(cmd,
			func() error { return runCreate(cmd.Context(), e, o) },
			func(ctx context.Context, s backend.Server) error {
				m, err := o.createOnServer(ctx, e, s, cmd, nil)
				if err == nil {
					_, err = fmt.Fprintln(e.stdout, m.Record.Name)
				}
				return err
			}, append([]string{"name"}, serverFlags...)...)
	}
	o.register(cmd)
	cmd.Flags().StringVar(&o.Name, "name", "", "name of the sandbox, as NAME (default: a generated one)")
	return cmd
}

func runCreate(ctx context.Context, e *env, o sandboxOptions) error {
	if err := o.checkHere(); err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	if o.Name != "" {
		if err := record.CheckName(o.Name); err != nil {
			return err
		}
		if _, err := home.Open(o.Name); err == nil {
			return errdefs.New(errdefs.Exists, "sandbox %s: exists already", o.Name)
		}
	}
	sb, err := o.create(e, home)
	if err == nil {
		err = e.sayMounts(sb)
	}
	if err == nil {
		look := startGitLook(ctx, sb)
		defer look.end()
		err = look.tell(e, gitPatience)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.stdout, sb.Name())
	return err
}
