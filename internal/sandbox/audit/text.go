package audit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Text is bytes from a sandbox or from a file system: a path, an argument, a program's
// name. JSON has it escaped with vpath.Escape, without newlines and without loss. An
// escaped text above 512 KiB is cut and ends in `\cut{N}`, where N is the number of omitted
// bytes. vpath.Unescape refuses a cut text.
type Text string

// Texts converts a list of strings or of paths.
func Texts[S ~string](list []S) []Text {
	texts := make([]Text, len(list))
	for i, s := range list {
		texts[i] = Text(s)
	}
	return texts
}

var cutMark = regexp.MustCompile(`\\cut\{[0-9]+\}$`)

func (t Text) escape() string { return escapeUpTo(string(t), maxText) }

// escapeUpTo escapes whole, and cuts the result at limit bytes.
func escapeUpTo(whole string, limit int) string {
	// Each byte has at least one escaped byte.
	if len(whole) <= limit {
		if e := vpath.Escape(whole); len(e) <= limit {
			return e
		}
	}
	keep := min(len(whole), limit)
	for len(vpath.Escape(whole[:keep])) > limit {
		keep /= 2
	}
	return vpath.Escape(whole[:keep]) + fmt.Sprintf(`\cut{%d}`, len(whole)-keep)
}

// Path is a Text that is cut at 1 KiB, because a program inside can use long paths without
// limit.
type Path string

// MarshalJSON writes p escaped.
func (p Path) MarshalJSON() ([]byte, error) { return marshal(escapeUpTo(string(p), maxPath)) }

// UnmarshalJSON is that of Text.
func (p *Path) UnmarshalJSON(data []byte) error { return (*Text)(p).UnmarshalJSON(data) }

// MarshalJSON writes t escaped.
func (t Text) MarshalJSON() ([]byte, error) { return marshal(t.escape()) }

// UnmarshalJSON unescapes the text. It keeps the mark of a cut text. Errors: Invalid for an
// escape that vpath.Escape never writes.
func (t *Text) UnmarshalJSON(data []byte) error {
	var escaped string
	if err := json.Unmarshal(data, &escaped); err != nil {
		return err
	}
	cut := cutMark.FindString(escaped)
	raw, err := vpath.Unescape(strings.TrimSuffix(escaped, cut))
	if err != nil {
		return err
	}
	*t = Text(raw + cut)
	return nil
}

// marshal is json.Marshal without escapes of <, > and &.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// budget is how many bytes remain for the lists of a record.
type budget int

// fit returns the items of list, in order, that fit into the budget, and the number of
// omitted ones. An item that is too large does not exclude later, smaller ones.
func fit[T any](b *budget, list []T) (kept []T, omitted int64) {
	for _, item := range list {
		data, err := marshal(item)
		size := budget(len(data) + 1)
		if err != nil || size > *b {
			omitted++
			continue
		}
		*b -= size
		kept = append(kept, item)
	}
	return kept, omitted
}
