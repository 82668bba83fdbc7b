package audit

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
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

func (t Text) escape() string { return escapeUpTo(string(t), maxText) }

// escapeUpTo escapes whole, and cuts it if that takes more than limit bytes.
func escapeUpTo(whole string, limit int) string {
	// Each byte escapes to at least one.
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

// Path is a Text that is cut beyond 1 KiB: a program inside can name long paths
// as often as it likes.
type Path string

// MarshalJSON writes p escaped.
func (p Path) MarshalJSON() ([]byte, error) { return marshal(escapeUpTo(string(p), maxPath)) }

// UnmarshalJSON is that of Text.
func (p *Path) UnmarshalJSON(data []byte) error { return (*Text)(p).UnmarshalJSON(data) }

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
