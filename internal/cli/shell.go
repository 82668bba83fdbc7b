package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// shellOptions are those of run, which makes the sandbox where none is named.
type shellOptions struct {
	runOptions
	Shell string // "" for the default
}

func newShell(e *env) *cobra.Command {
	var o shellOptions
	cmd := &cobra.Command{
		Use:   "shell [NAME]",
		Short: "Open an interactive shell in a sandbox",
		Long: `Open an interactive shell: in the sandbox NAME, or without a name in a new one,
which is made as run makes it and stays afterwards.`,
		Example: `  agentfense shell
  agentfense shell --preset development
  agentfense shell fix
  agentfense shell fix --shell /bin/sh
  agentfense shell fix --endpoint https://build:9000`,
		Args:              cobra.MaximumNArgs(1),
		Annotations:       map[string]string{annotationInside: "true"},
		ValidArgsFunction: e.completeNames,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.open(cmd, e, args) }
	marked(cmd)
	o.sandboxOptions.register(cmd)
	o.commandOptions.register(cmd)
	rebaseFlag(cmd, &o.Rebase)
	cmd.Flags().StringVar(&o.Shell, "shell", "", "the shell (default: yours if it exists inside, else bash or sh)")
	return cmd
}

// open opens a shell in the sandbox that args name, or in a new one.
func (o *shellOptions) open(cmd *cobra.Command, e *env, args []string) error {
	argv := func(hostPrograms bool) []string {
		switch {
		case o.Shell != "":
			return []string{o.Shell}
		case hostPrograms:
			return []string{e.defaultShell()}
		}
		return serverShell
	}
	if len(args) > 0 {
		if err := refuseMaking(cmd, args[0]); err != nil {
			return err
		}
		return e.exec(cmd, args[0], execOptions{o.commandOptions, o.Timeout, o.Rebase}, argv)
	}
	if err := checkVariables(o.Env); err != nil {
		return err
	}
	return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
		return runRun(ctx, e, cmd, b, o.runOptions, argv)
	})
}

// refuseMaking refuses the flags that say what a sandbox is, for the one called
// name, which exists.
func refuseMaking(cmd *cobra.Command, name string) error {
	for _, flag := range slices.Concat([]string{"dir", "codebase"}, policyFlags, limitFlags) {
		if flag != "timeout" && cmd.Flags().Changed(flag) {
			return errdefs.New(errdefs.Invalid, "shell %s --%s: `shell NAME` opens a sandbox that exists; leave NAME out to make one, or use `agentfense run --name %[1]s`", name, flag)
		}
	}
	return nil
}

// defaultShell is the person's own shell where it lies in what every sandbox
// has, else the best one the system has.
func (e *env) defaultShell() string {
	for _, shell := range []string{e.getenv("SHELL"), "/bin/bash"} {
		dir := filepath.Dir(shell)
		if dir != "/bin" && dir != "/usr/bin" && dir != "/usr/local/bin" {
			continue
		}
		if info, err := os.Stat(shell); err == nil && info.Mode().IsRegular() {
			return shell
		}
	}
	return "/bin/sh"
}

// serverShell is the shell on a server, whose system is not ours.
var serverShell = []string{"/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"}
