package textdiff

import (
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Patch is one file of a patch in git's format.
type Patch struct {
	Added, Deleted bool // the file as a whole
	Hunks          []Hunk
}

// ParsePatch reads a patch in git's format, as sandboxes are shown with: names
// are not looked at, and lines that belong to no hunk are passed over. Errors:
// Invalid for a hunk that is not whole.
func ParsePatch(text string) ([]Patch, error) {
	var patches []Patch
	lines := SplitLines(text)
	for len(lines) > 0 {
		line := lines[0]
		lines = lines[1:]
		if strings.HasPrefix(line, "diff --git ") {
			patches = append(patches, Patch{})
		}
		if len(patches) == 0 {
			continue
		}
		last := &patches[len(patches)-1]
		switch {
		case strings.HasPrefix(line, "new file mode "):
			last.Added = true
		case strings.HasPrefix(line, "deleted file mode "):
			last.Deleted = true
		case strings.HasPrefix(line, "@@ "):
			h, err := parseHeader(line)
			if err != nil {
				return nil, err
			}
			if lines, err = h.take(lines); err != nil {
				return nil, err
			}
			last.Hunks = append(last.Hunks, h)
		}
	}
	return patches, nil
}

// parseHeader reads what Header returns.
func parseHeader(line string) (Hunk, error) {
	fields := strings.Fields(line)
	if len(fields) < 4 || fields[3] != "@@" || fields[1][0] != '-' || fields[2][0] != '+' {
		return Hunk{}, errdefs.New(errdefs.Invalid, "hunk: malformed header %q", line)
	}
	var h Hunk
	oldErr := parseSpan(fields[1][1:], &h.OldStart, &h.OldLines)
	newErr := parseSpan(fields[2][1:], &h.NewStart, &h.NewLines)
	if oldErr || newErr {
		return Hunk{}, errdefs.New(errdefs.Invalid, "hunk: malformed header %q", line)
	}
	return h, nil
}

func parseSpan(text string, start, lines *int) (bad bool) {
	first, count, given := strings.Cut(text, ",")
	var err error
	if *start, err = strconv.Atoi(first); err != nil || *start < 0 {
		return true
	}
	if *lines = 1; given {
		*lines, err = strconv.Atoi(count)
	}
	return err != nil || *lines < 0
}

// take takes the lines of h and returns those behind it.
func (h *Hunk) take(lines []string) ([]string, error) {
	before, after := h.OldLines, h.NewLines
	for before > 0 || after > 0 {
		if len(lines) == 0 || lines[0] == "" {
			return nil, errdefs.New(errdefs.Invalid, "hunk: it ends early")
		}
		l := Line{Op: Op(lines[0][0]), Text: lines[0][1:]}
		switch l.Op {
		case Equal:
			before, after = before-1, after-1
		case Delete:
			before--
		case Insert:
			after--
		default:
			return nil, errdefs.New(errdefs.Invalid, "hunk: line %q is neither kept, deleted nor inserted", lines[0])
		}
		if before < 0 || after < 0 {
			return nil, errdefs.New(errdefs.Invalid, "hunk: it has more lines than it says")
		}
		lines = lines[1:]
		if len(lines) > 0 && strings.HasPrefix(lines[0], `\`) {
			l.Text = strings.TrimSuffix(l.Text, "\n")
			lines = lines[1:]
		}
		h.Lines = append(h.Lines, l)
	}
	return lines, nil
}
