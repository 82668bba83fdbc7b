package cli

import (
	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// reportFormats are the forms of what policy prove and policy diff find.
var reportFormats = []string{"text", "json", "markdown", "sarif"}

// reportFormat is how a report is printed.
type reportFormat struct {
	name string
	json bool
}

func (f *reportFormat) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "format", "text", "`FORMAT` of the output: text, json, markdown, or sarif")
	jsonFlag(cmd, &f.json)
	cmd.MarkFlagsMutuallyExclusive("format", "json")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(reportFormats, cobra.ShellCompDirectiveNoFileComp))
}

// print writes the report, or document if JSON was asked for.
func (f *reportFormat) print(e *env, r present.PolicyReport, document any) error {
	if f.json {
		f.name = "json"
	}
	switch f.name {
	case "text":
		return r.Text(e.stdout)
	case "json":
		return e.printJSON(document)
	case "markdown":
		return r.Markdown(e.stdout)
	case "sarif":
		return e.printJSON(r.SARIF(executable.Version()))
	}
	return usageError{errdefs.New(errdefs.Invalid, "--format %s: want text, json, markdown, or sarif", vpath.Quote(f.name))}
}
