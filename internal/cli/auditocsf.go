package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/audit/ocsf"
)

// printOCSF prints the OCSF events of a record, one a line.
func printOCSF(w io.Writer, r audit.Record) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	for _, event := range ocsf.Events(r, executable.Version()) {
		if err := encoder.Encode(event); err != nil {
			return err
		}
	}
	_, err := w.Write(vpath.EscapeJSON(text.Bytes()))
	return err
}
