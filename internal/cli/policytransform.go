package cli

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// transformJSON is in JSON documents what a path shows in place of its content.
type transformJSON struct {
	Redact     policy.Format `json:"redact,omitempty"`
	Substitute string        `json:"substitute,omitempty"` // escaped; the path of the file
}

func transformJSONOf(p vpath.Path, d policy.Decision) transformJSON {
	doc := transformJSON{Redact: d.Transform.Redact}
	if d.Transform.Substitute != "" {
		doc.Substitute = d.Transform.Target(p).String()
	}
	return doc
}

// transformText says what a regular file at p shows in place of its content, "" if that is its
// content.
func transformText(p vpath.Path, d policy.Decision) string {
	switch t := d.Transform; {
	case t.Redact != policy.NoFormat:
		return fmt.Sprintf("a file here shows its keys and masked values, as %s; a file in another format is absent", t.Redact)
	case t.Substitute != "":
		return fmt.Sprintf("a file here shows the content of %s; it is absent if that file does not exist or the policy does not show it", t.Target(p))
	}
	return ""
}
