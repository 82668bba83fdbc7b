package cli

import (
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
)

// explainArgs lets cmd and all below say what they want where the words of the
// command line do not fit.
func (e *env) explainArgs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		e.explainArgs(sub)
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
		if cmd.HasAvailableSubCommands() && len(args) > 0 && !takesArgs(cmd) {
			near := didYouMean(args[0], verbsOf(cmd))
			if !cmd.HasParent() {
				near += e.newProfileHint(args[0], near)
			}
			return usageError{errdefs.New(errdefs.Invalid, "no command %s%s (see `%s --help`)",
				vpath.Quote(strings.TrimSpace(below+" "+args[0])), near, cmd.CommandPath())}
		}
		return usageError{errdefs.New(errdefs.Invalid, "%s given, usage: %s (see `%s --help`)",
			plural(len(args), "argument"), cmd.UseLine(), cmd.CommandPath())}
	}
}

// takesArgs reports whether cmd itself has arguments, as lock and snapshot do beside lock ls and
// snapshot ls.
func takesArgs(cmd *cobra.Command) bool { return strings.ContainsRune(cmd.Use, ' ') }

// newProfileHint says how an unknown verb becomes that of an agent, if it is a program, or like no
// other verb.
func (e *env) newProfileHint(word, near string) string {
	if profile.CheckName(word) != nil || near != "" && e.ownProgram(word) == "" {
		return ""
	}
	return "; if it is a coding agent: agentfense profile new " + word
}

// explainFlag says what a flag that could not be read should have been.
func explainFlag(cmd *cobra.Command, err error) error {
	if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) && wrong.GetFlag().Value.Type() == "duration" {
		err = errdefs.New(errdefs.Invalid, "%w; want a unit, such as 10s or 5m", err)
	}
	near := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		near = didYouMean("--"+unknown.GetSpecifiedName(), flagsOf(cmd))
	}
	return usageError{errdefs.New(errdefs.Invalid, "%w%s (see `%s --help`)", err, near, cmd.CommandPath())}
}

// exclusive is cobra's text for flags that exclude each other.
var exclusive = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^if any flags in the group .* are set none of the others can be; \[(.*)\] were all set$`)
})

// explainExclusive says which flags exclude each other, if that is what err is about.
func explainExclusive(err error) error {
	m := exclusive().FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	flags := strings.Fields(m[1])
	return usageError{errdefs.New(errdefs.Invalid, "--%s exclude each other: give only one of them", strings.Join(flags, " and --"))}
}

// required is cobra's text for flags that are missing.
var required = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^required flag\(s\) "(.*)" not set$`) })

// explainRequired says which flags of cmd are missing, if that is what err is about.
func explainRequired(cmd *cobra.Command, err error) error {
	m := required().FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	flags := strings.ReplaceAll(m[1], `", "`, " and --")
	return usageError{errdefs.New(errdefs.Invalid, "--%s is missing, usage: %s (see `%s --help`)", flags, cmd.UseLine(), cmd.CommandPath())}
}

// flagsOf are the flags that the help of cmd shows.
func flagsOf(cmd *cobra.Command) []string {
	hideEndpoint(cmd)
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return names
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
