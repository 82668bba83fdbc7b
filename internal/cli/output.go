package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// schemaVersion is that of the JSON documents on stdout, but of those that tell
// of changes, see sandbox.ReviewVersion. It grows when a
// field changes its meaning or goes; new fields do not change it.
const schemaVersion = 1

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, to *bool) {
	cmd.Flags().BoolVar(to, "json", false, "print one JSON document with schema_version")
}

// printJSON prints v indented on stdout, as a terminal may show it.
func (e *env) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := e.stdout.Write(vpath.EscapeJSON(b.Bytes()))
	return err
}

// printTable prints rows under their head in aligned columns.
func printTable(w io.Writer, head []string, rows [][]string) error {
	return printRows(w, append([][]string{head}, rows...))
}

// printRows prints rows in aligned columns. The cells hold no control
// characters: what others named has been escaped.
func printRows(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	return tw.Flush()
}

// colour wraps s in an SGR sequence where w is a terminal and the user has
// not set NO_COLOR (no-color.org).
func (e *env) colour(w interface{ Fd() uintptr }, sgr, s string) string {
	if e.getenv("NO_COLOR") != "" || !term.IsTerminal(int(w.Fd())) {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}
