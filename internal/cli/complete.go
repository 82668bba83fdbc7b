package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// completer proposes words for the argument after args, which begins with word.
type completer = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// completeNames completes the first argument with the names of the sandboxes.
func (e *env) completeNames(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if e.address() != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp // asking a server takes too long for a key
	}
	home, err := e.openHome()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return names(home), cobra.ShellCompDirectiveNoFileComp
}

// completeChanged completes the first argument as completeNames, and up to
// upTo more with the paths that the sandbox changed (0: any number).
func (e *env) completeChanged(upTo int) completer {
	return e.completePaths(upTo, record.Mount.HasDelta, func(_ *record.Home, sb *record.Sandbox, mount string, _ vpath.Path) ([]string, error) {
		part, err := sb.InMount(mount)
		if err != nil {
			return nil, err
		}
		review, err := review.Open(part)
		if err != nil {
			return nil, err
		}
		defer review.Close()
		var found []string
		for _, f := range review.Files() {
			found = append(found, f.Path.Rel())
		}
		return found, nil
	})
}

// completeViewed is completeChanged with the paths of the sandbox's view.
func (e *env) completeViewed(upTo int) completer {
	all := func(record.Mount) bool { return true }
	return e.completePaths(upTo, all, func(home *record.Home, sb *record.Sandbox, mount string, dir vpath.Path) ([]string, error) {
		v, err := openView(home, sb, mount)
		if err != nil {
			return nil, err
		}
		defer v.Close()
		entries, err := v.List(dir)
		if err != nil {
			return nil, err
		}
		var found []string
		for _, entry := range entries {
			name := entry.Path.Rel()
			if record.IsDir(entry.Mode) {
				name += "/"
			}
			found = append(found, name)
		}
		return found, nil
	})
}

func openView(home *record.Home, sb *record.Sandbox, mount string) (*readview.View, error) {
	if mount != "" {
		return readview.OpenMount(sb, mount)
	}
	return readview.Open(home, sb)
}

// completeMounts completes a flag that takes the name of a mount with changes, of the sandbox
// that is the first argument.
func (e *env) completeMounts(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 || e.address() != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_, sb, err := e.open(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []string
	for _, m := range sb.Record().Mounts {
		if m.HasDelta() {
			found = append(found, m.Name)
		}
	}
	return found, cobra.ShellCompDirectiveNoFileComp
}

// mountOf returns the mount of the sandbox in which the word is a path, "" for the workspace: it
// begins with NAME:/, or the command has --in NAME. prefix is what comes before the path.
func mountOf(cmd *cobra.Command, sb *record.Sandbox, word string) (mount, prefix string) {
	if name, _, found := strings.Cut(word, ":/"); found && slices.ContainsFunc(sb.Record().Mounts, func(m record.Mount) bool { return m.Name == name }) {
		return name, name + ":"
	}
	if in := cmd.Flags().Lookup("in"); in != nil && in.Value.String() != mountspec.Workspace {
		return in.Value.String(), ""
	}
	return "", ""
}

// completePaths completes the name of a sandbox and then paths, of which find
// knows those of a directory, or all. MOUNT:/ is proposed for the mounts for which has is true. An
// error means no proposals: a shell that completes shows no messages.
func (e *env) completePaths(upTo int, has func(record.Mount) bool, find func(home *record.Home, sb *record.Sandbox, mount string, dir vpath.Path) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 || e.address() != "" {
			return e.completeNames(cmd, args, word)
		}
		if upTo > 0 && len(args) > upTo {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		home, sb, err := e.open(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		mount, before := mountOf(cmd, sb, word)
		whole := word
		word = strings.TrimPrefix(word, before)
		rooted := strings.HasPrefix(word, "/")
		prefix := strings.TrimPrefix(word, "/")
		dir, err := vpath.Parse(prefix[:strings.LastIndexByte(prefix, '/')+1])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, err := find(home, sb, mount, dir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if rooted {
			before += "/"
		}
		out, directive := proposals(found, prefix, before, args[1:])
		if mount != "" {
			return out, directive
		}
		for _, m := range sb.Record().Mounts {
			if has(m) && strings.HasPrefix(m.Name, whole) {
				out, directive = append(out, m.Name+":/"), directive|cobra.ShellCompDirectiveNoSpace
			}
		}
		return out, directive
	}
}

// proposals are the paths that begin with prefix, cut behind the next slash:
// a directory at a time, with before in front. Names that a line of text cannot hold are left
// out, and those that are given already.
func proposals(paths []string, prefix, before string, given []string) ([]string, cobra.ShellCompDirective) {
	var out []string
	directive := cobra.ShellCompDirectiveNoFileComp
	for _, path := range paths {
		rest, ok := strings.CutPrefix(path, prefix)
		if !ok || vpath.Escape(path) != path {
			continue
		}
		if slash := strings.IndexByte(rest, '/'); slash >= 0 {
			path = prefix + rest[:slash+1]
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		path = before + path
		if !slices.Contains(given, path) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), directive
}

// completeRest completes the flags and arguments of all verbs that have no completion yet and
// take no path: else a shell proposes files for them.
func (e *env) completeRest(cmd *cobra.Command) {
	nothing := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveNoFileComp)
	dirs := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, has := cmd.GetFlagCompletionFunc(f.Name); has || f.Value.Type() == "bool" {
			return
		}
		switch {
		case f.Name == "dir":
			cmd.RegisterFlagCompletionFunc(f.Name, dirs)
		case f.Name == "env":
			cmd.RegisterFlagCompletionFunc(f.Name, completeVariables)
		case f.Name == "name" && cmd.Name() == "run":
			cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
				return e.completeNames(cmd, nil, word)
			})
		case slices.Contains([]string{"size", "duration", "int", "int64", "float64"}, f.Value.Type()), f.Name == "user":
			cmd.RegisterFlagCompletionFunc(f.Name, nothing)
		}
	})
	for _, sub := range cmd.Commands() {
		e.completeRest(sub)
	}
}

// completeVariables completes the name of a variable of this environment.
func completeVariables(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); vpath.Escape(name) == name {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, cobra.ShellCompDirectiveNoFileComp
}
