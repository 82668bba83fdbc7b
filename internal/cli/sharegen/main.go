// Command sharegen writes the man pages of all verbs and the completions of three shells, in
// the layout of a share directory. It is not part of the shipped programs.
//
// Usage: sharegen DIR VERSION
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sharegen DIR VERSION")
		os.Exit(2)
	}
	if err := generate(cli.Root(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sharegen:", err)
		os.Exit(1)
	}
}

// generate writes everything below dir.
func generate(root *cobra.Command, dir, version string) error {
	root.InitDefaultCompletionCmd()
	var failed error
	each(root, func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		if err := write(filepath.Join(dir, "man/man1", pageName(cmd)+".1"), manPage(cmd, version)); failed == nil {
			failed = err
		}
	})
	for name, generate := range map[string]func(b *strings.Builder) error{
		"bash-completion/completions/agentfense":    func(b *strings.Builder) error { return root.GenBashCompletionV2(b, true) },
		"zsh/site-functions/_agentfense":            func(b *strings.Builder) error { return root.GenZshCompletion(b) },
		"fish/vendor_completions.d/agentfense.fish": func(b *strings.Builder) error { return root.GenFishCompletion(b, true) },
	} {
		var b strings.Builder
		if err := generate(&b); err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), b.String()); err != nil {
			return err
		}
	}
	return failed
}

// each calls do with cmd and with all commands below it that people see.
func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			each(sub, do)
		}
	}
}

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
