package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
)

// maxStartSandboxes bounds the sandboxes that runStart counts the changes of.
const maxStartSandboxes = 8

// runStart says what to type next: agentfense without arguments.
func runStart(cmd *cobra.Command, e *env) error {
	if e.address() != "" {
		return cmd.Help()
	}
	dir, err := realPath(".")
	if err != nil || broad(dir) != "" {
		return printStart(e, shortHelp)
	}
	file, err := projectDir(dir)
	if err != nil {
		return err
	}
	sandboxes := e.sandboxesOf(dir)
	if file == "" && len(sandboxes) == 0 && !isProject(dir) {
		return printStart(e, shortHelp)
	}
	var lines [][2]string
	if file == "" {
		lines = append(lines, [2]string{"agentfense init", "write a policy file for this project"})
	}
	for _, line := range nextRun(e.agentsOnPath()) {
		lines = append(lines, [2]string{line, "start a command in a sandbox of this project"})
	}
	if file != "" {
		lines = append(lines, [2]string{"agentfense policy tree", "show what a command sees"})
	}
	lines = append(lines, pendingLines(sandboxes)...)
	return printStart(e, append(lines, [2]string{"agentfense --help", "list all verbs"}))
}

var shortHelp = [][2]string{
	{"cd PROJECT", "agentfense runs commands against a view of a project"},
	{"agentfense init", "in the project: write a policy file"},
	{"agentfense run -- COMMAND", "in the project: run a command in a sandbox"},
	{"agentfense ls", "list the sandboxes"},
	{"agentfense --help", "list all verbs"},
}

func printStart(e *env, lines [][2]string) error {
	var rows [][]string
	for _, l := range lines {
		rows = append(rows, []string{"  " + l[0], l[1]})
	}
	if _, err := fmt.Fprintln(e.stdout, "What to type next:"); err != nil {
		return err
	}
	return printRows(e.stdout, rows)
}

// isProject reports whether dir looks like a project: it is in a repository of this user, or
// has a file of a language or a build tool.
func isProject(dir string) bool {
	return repositoryAbove(dir, ownersOf(dir)) != "" || len(languagesOf(entriesOf(dir))) > 0
}

// sandboxesOf returns the sandboxes of this host with the source dir or a directory in it.
func (e *env) sandboxesOf(dir string) []*record.Sandbox {
	home, err := e.openHome()
	if err != nil {
		return nil
	}
	all, _ := home.List() // damaged ones are a matter of `agentfense ls`
	var out []*record.Sandbox
	for _, sb := range all {
		source := string(sb.Record().Source.Path)
		if filepath.IsAbs(source) && safefs.IsBelow(source, dir) {
			out = append(out, sb)
		}
	}
	return out
}

// pendingLines proposes how to go on with sandboxes that have changes.
func pendingLines(sandboxes []*record.Sandbox) [][2]string {
	var out [][2]string
	for i, sb := range sandboxes {
		if i == maxStartSandboxes {
			return append(out, [2]string{"agentfense ls", fmt.Sprintf("show %d more sandboxes of this project", len(sandboxes)-i)})
		}
		usage, err := held.Of(sb)
		if err != nil || usage.Changes == 0 {
			continue
		}
		count := plural(usage.Changes, "change")
		if usage.More {
			count = "more than " + count
		}
		name := vpath.Escape(sb.Name())
		out = append(out,
			[2]string{"agentfense review " + name, "look at " + count},
			[2]string{"agentfense apply " + name, "bring them into the project"})
	}
	return out
}
