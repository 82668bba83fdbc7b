package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// leaves calls do with each verb that people see and that has none below.
func leaves(cmd *cobra.Command, do func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Hidden || sub.Name() == "help":
		case sub.HasAvailableSubCommands():
			leaves(sub, do)
		default:
			do(sub)
		}
	}
}

// TestEachVerbIsDocumented: docs/cli.md names each verb, and each one's help
// has an example.
func TestEachVerbIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	leaves(Root(), func(cmd *cobra.Command) {
		seen++
		verb := strings.TrimPrefix(cmd.CommandPath(), "agentfense ")
		if !strings.Contains(string(page), "`"+verb+"`") {
			t.Errorf("docs/cli.md does not name %s", verb)
		}
		if !strings.Contains(cmd.Example, "agentfense "+verb) {
			t.Errorf("the help of %s has no example of it", verb)
		}
	})
	if seen < 25 {
		t.Errorf("%d verbs", seen)
	}
}

// TestWhereEachVerbActs: docs/cli.md says of each verb whether it can act on a
// server.
func TestWhereEachVerbActs(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for verb := range strings.SplitSeq(cells[1], "`") {
			there[verb] = strings.TrimSpace(cells[3])
		}
	}
	leaves(Root(), func(cmd *cobra.Command) {
		verb := strings.TrimPrefix(cmd.CommandPath(), "agentfense ")
		says := there[verb]
		if refused := says == "" || strings.HasPrefix(says, "no"); refused != (cmd.Annotations[annotationServer] == "") {
			t.Errorf("%s: docs/cli.md says %q of a server", verb, says)
		}
	})
}

// TestHelpShowsTheServerWhereItCounts: only the help of verbs that can act on a
// server has the flags of one.
func TestHelpShowsTheServerWhereItCounts(t *testing.T) {
	for verb, want := range map[string]bool{"run": true, "codebase push": true, "policy explain": true, "doctor": false, "token create": false, "serve": false} {
		var shown strings.Builder
		root := Root()
		root.SetOut(&shown)
		root.SetArgs(append(strings.Fields(verb), "--help"))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(shown.String(), "--endpoint URL "); got != want {
			t.Errorf("the help of %s shows --endpoint: %t, want %t", verb, got, want)
		}
	}
}
