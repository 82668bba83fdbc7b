package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// explainArgs lets cmd and all below say what they want where the words of the
// command line do not fit.
func explainArgs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		explainArgs(sub)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		_, below, _ := strings.Cut(cmd.CommandPath(), " ")
		if cmd.HasAvailableSubCommands() && len(args) > 0 {
			return usageError{fault.New(fault.Invalid, "no command %s%s (see `%s --help`)",
				vpath.Quote(strings.TrimSpace(below+" "+args[0])), didYouMean(args[0], verbsOf(cmd)), cmd.CommandPath())}
		}
		return usageError{fault.New(fault.Invalid, "%s given, usage: %s (see `%s --help`)",
			plural(len(args), "argument"), cmd.UseLine(), cmd.CommandPath())}
	}
}

func verbsOf(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}
