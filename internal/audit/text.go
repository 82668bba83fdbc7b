package audit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/vpath"
)

// Text is bytes that came from inside a sandbox or from a file system: a path,
// an argument, a program's name. In JSON it is escaped by vpath.Escape, so a
// line stays one line and every byte comes back. Beyond 512 KiB of that it is
// cut and ends in `\cut{N}`, N being the bytes left out; vpath.Unescape refuses
// that, so no cut text passes for a whole one.
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

func (t Text) escape() string {
	// Each byte escapes to at least one.
	whole := string(t)
	if len(whole) <= maxText {
		if e := vpath.Escape(whole); len(e) <= maxText {
			return e
		}
	}
	keep := min(len(whole), maxText)
	for len(vpath.Escape(whole[:keep])) > maxText {
		keep /= 2
	}
	return vpath.Escape(whole[:keep]) + fmt.Sprintf(`\cut{%d}`, len(whole)-keep)
}

// MarshalJSON writes t escaped.
func (t Text) MarshalJSON() ([]byte, error) { return marshal(t.escape()) }

// UnmarshalJSON gives back the bytes. The mark of a cut text stays in it.
// Errors: Invalid for an escape that vpath.Escape never writes.
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

// marshal is json.Marshal that leaves <, > and & readable.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

// budget is how many bytes the lists of a record may still take.
type budget int

// fit returns the items of list, in order, that the budget has room for, and
// how many it had no room for. One that is too large does not keep later,
// smaller ones out.
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
