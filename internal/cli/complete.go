package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/vpath"
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
	return e.completePaths(upTo, func(_ *record.Home, sb *record.Sandbox, _ vpath.Path) ([]string, error) {
		review, err := review.Open(sb)
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
	return e.completePaths(upTo, func(home *record.Home, sb *record.Sandbox, dir vpath.Path) ([]string, error) {
		v, err := readview.Open(home, sb)
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
			if typeName(entry.Mode) == "directory" {
				name += "/"
			}
			found = append(found, name)
		}
		return found, nil
	})
}

// completePaths completes the name of a sandbox and then paths, of which find
// knows those of a directory, or all. An error means no proposals: a shell that
// completes shows no messages.
func (e *env) completePaths(upTo int, find func(*record.Home, *record.Sandbox, vpath.Path) ([]string, error)) completer {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 || e.address() != "" {
			return e.completeNames(cmd, args, word)
		}
		if upTo > 0 && len(args) > upTo {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		rooted := strings.HasPrefix(word, "/")
		prefix := strings.TrimPrefix(word, "/")
		home, sb, err := e.open(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		dir, err := vpath.Parse(prefix[:strings.LastIndexByte(prefix, '/')+1])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, err := find(home, sb, dir)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return proposals(found, prefix, rooted, args[1:])
	}
}

// proposals are the paths that begin with prefix, cut behind the next slash:
// a directory at a time. Names that a line of text cannot hold are left out,
// and those that are given already.
func proposals(paths []string, prefix string, rooted bool, given []string) ([]string, cobra.ShellCompDirective) {
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
		if rooted {
			path = "/" + path
		}
		if !slices.Contains(given, path) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), directive
}
