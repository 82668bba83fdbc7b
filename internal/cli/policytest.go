package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

func newPolicyTest(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test [FILE]",
		Short: "Check what a policy file expects of itself",
		Long: `Check the expectations of a policy file (default: .agentfense.yaml): its list
expect, of {path, permission}. A path begins at the workspace's root and need not
exist; one with a slash at its end is a directory. The exit code is 1 if an
expectation does not hold.`,
		Example: `  agentfense policy test
  agentfense policy test policy.yaml --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := policy.ProjectFile.Rel()
			if len(args) > 0 {
				file = args[0]
			}
			return runPolicyTest(e, file, asJSON)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

type outcomeJSON struct {
	Path     string            `json:"path"` // escaped
	Expected policy.Permission `json:"expected"`
	Got      policy.Permission `json:"got"`
	OK       bool              `json:"ok"`
	Reason   string            `json:"reason"`
	Source   string            `json:"source"`
}

func runPolicyTest(e *env, file string, asJSON bool) error {
	doc, rules, err := loadPolicyFile(file, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return errdefs.New(errdefs.NotFound, "%w; `agentfense init` writes one to start from", err)
	}
	if err != nil {
		return err
	}
	if len(doc.Expect) == 0 {
		return errdefs.New(errdefs.Invalid, "policy test: %s has no expectations: add expect: [{path: /.env, permission: none}]", vpath.Escape(file))
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return err
	}
	failed := 0
	list := []outcomeJSON{}
	for _, o := range policyfile.Test(p, doc.Expect) {
		path := o.Path.String()
		if o.Dir && !o.Path.IsRoot() {
			path += "/"
		}
		list = append(list, outcomeJSON{path, o.Permission, o.Got, o.Holds(), o.Decision.Reason, vpath.Escape(o.Source)})
		if o.Holds() {
			continue
		}
		failed++
		if asJSON {
			continue
		}
		if _, err := fmt.Fprintf(e.stdout, "%s: %s is %s, expected %s: %s\n", vpath.Escape(o.Source), path, o.Got, o.Permission, o.Decision.Reason); err != nil {
			return err
		}
	}
	if asJSON {
		err = e.printJSON(struct {
			SchemaVersion int           `json:"schema_version"`
			Failed        int           `json:"failed"`
			Expectations  []outcomeJSON `json:"expectations"`
		}{schemaVersion, failed, list})
	} else {
		_, err = fmt.Fprintf(e.stdout, "%s: %d of %s hold\n", vpath.Escape(file), len(list)-failed, plural(len(list), "expectation"))
	}
	if err == nil && failed > 0 {
		return exitError(exitFailure)
	}
	return err
}
