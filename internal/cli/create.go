package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/sandbox"
)

func newCreate(e *env) *cobra.Command {
	var o sandboxOptions
	cmd := &cobra.Command{
		Use:   "create NAME [flags]",
		Short: "Make a sandbox without running anything in it",
		Example: `  agentfense create fix --preset development --hide '*.sqlite'
  agentfense exec fix -- make test`,
		Args: cobra.ExactArgs(1),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.Name = args[0]
		return e.either(cmd,
			func() error { return runCreate(cmd.Context(), e, o) },
			func(ctx context.Context, s control.Server) error {
				m, err := o.createOnServer(ctx, e, s, cmd)
				if err == nil {
					_, err = fmt.Fprintln(e.stdout, m.Record.Name)
				}
				return err
			}, serverFlags...)
	}
	o.register(cmd)
	return cmd
}

func runCreate(ctx context.Context, e *env, o sandboxOptions) error {
	if err := o.checkHere(); err != nil {
		return err
	}
	if err := sandbox.CheckName(o.Name); err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	if _, err := home.Open(o.Name); err == nil {
		return fault.New(fault.Exists, "sandbox %s: exists already", o.Name)
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
