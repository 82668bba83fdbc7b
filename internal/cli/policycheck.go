package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func newPolicyCheck(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a policy file and warn of what is probably not meant",
		Long: `Check a policy file (default: .agentfense.yaml). Errors name the line and the
nearest valid word. Warnings, which do not change the exit code, tell of rules
that never decide, that tie, that let names of hidden directories show, that mean
an existing directory without what is in it, and of a policy that shows nothing.
Notes tell of rules that match nothing in the current directory, and of hidden files
with a content that git keeps in its objects.`,
		Example: `  agentfense policy check
  agentfense policy check policy.yaml --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := policy.ProjectFile.Rel()
			if len(args) > 0 {
				file = args[0]
			}
			return runPolicyCheck(cmd.Context(), e, file, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

type warningJSON struct {
	Kind  policy.WarningKind `json:"kind"`
	Rule  int                `json:"rule"`
	Other *int               `json:"other,omitempty"`
	Text  string             `json:"text"`
}

func runPolicyCheck(ctx context.Context, e *env, file string, asJSON bool) error {
	doc, rules, err := loadPolicyFile(file, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return errdefs.New(errdefs.NotFound, "%w; `agentfense init` writes one to start from", err)
	}
	if err != nil {
		return err
	}
	hosts, err := hostsOf(doc.Network)
	if err != nil {
		return err
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err == nil {
		err = checkScratch(doc, p)
	}
	if err != nil {
		return err
	}
	warnings := append(p.Check(), entryWarnings(".", p)...)
	idle, err := unmatched(".", rules)
	if err != nil {
		return err
	}
	tracked, err := local.LookAtGit(ctx, ".", p)
	if err != nil {
		return err
	}
	if asJSON {
		list := make([]warningJSON, len(warnings))
		for i, w := range warnings {
			list[i] = warningJSON{Kind: w.Kind, Rule: w.Rule, Text: w.Text}
			if w.Other != policy.NoRule {
				list[i].Other = &w.Other
			}
		}
		return e.printJSON(struct {
			SchemaVersion int           `json:"schema_version"`
			Rules         []policy.Rule `json:"rules"`
			AllowNet      []string      `json:"allow_net,omitempty"`
			Scratch       []string      `json:"scratch,omitempty"`
			Warnings      []warningJSON `json:"warnings"`
			Unmatched     []int         `json:"unmatched"` // indexes of rules that match nothing here
			Tracked       *trackedJSON  `json:"tracked,omitempty"`
		}{schemaVersion, rules, hosts, doc.ScratchTexts(), list, idle, trackedJSONOf(tracked)})
	}
	if err := printCheck(e, rules, warnings, idle); err != nil {
		return err
	}
	if err := printTracked(e.stdout, tracked); err != nil {
		return err
	}
	printSaid(e, rules, doc.ScratchTexts(), hosts)
	_, err = fmt.Fprintf(e.stdout, "%s: %s, %s\n", vpath.Escape(file), plural(len(rules), "rule"), plural(len(warnings), "warning"))
	return err
}

// printSaid prints what the file says besides permissions.
func printSaid(e *env, rules []policy.Rule, dirs, hosts []string) {
	if note := hidingNote(rules); note != "" {
		fmt.Fprintln(e.stdout, "note: "+note)
	}
	for _, r := range rules {
		if r.Keep {
			fmt.Fprintf(e.stdout, "note: %s%s\n", r, keepNote(r))
		}
	}
	if len(dirs) > 0 {
		fmt.Fprintf(e.stdout, "scratch: %s\n", vpath.Escape(strings.Join(dirs, " ")))
	}
	if len(hosts) > 0 {
		fmt.Fprintf(e.stdout, "network: %s\n", vpath.Escape(strings.Join(hosts, " ")))
	}
}

// printCheck prints the warnings, and the rules that match nothing.
func printCheck(e *env, rules []policy.Rule, warnings []policy.Warning, idle []int) error {
	for _, w := range warnings {
		if _, err := fmt.Fprintf(e.stdout, "warning: %s: %s\n", w.Kind, w.Text); err != nil {
			return err
		}
	}
	for _, i := range idle {
		if _, err := fmt.Fprintf(e.stdout, "note: %s matches nothing here\n", rules[i]); err != nil {
			return err
		}
	}
	return nil
}

// hidingNote says how many rules of none are own and which are strict.
func hidingNote(rules []policy.Rule) string {
	own := 0
	var strict []string
	for _, r := range rules {
		switch {
		case r.Permission != policy.None:
		case r.Own:
			own++
		default:
			strict = append(strict, r.String())
		}
	}
	if own+len(strict) == 0 {
		return ""
	}
	note := fmt.Sprintf("%s of none: %d own (a command may make entries there, never applied), %d strict (nothing can be made there)",
		plural(own+len(strict), "rule"), own, len(strict))
	if n := len(strict) - maxNotes; n > 0 {
		strict = append(strict[:maxNotes], fmt.Sprintf("%d more", n))
	}
	if len(strict) > 0 {
		note += ": " + strings.Join(strict, ", ")
	}
	return note
}
