package textdiff

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Split cuts a hunk between its changes, as `git add -p` does: each piece has one run of changed
// lines, with the unchanged lines before and after it, which the next piece may share. A hunk with
// one run is returned as it is.
func Split(h Hunk) []Hunk {
	runs := h.runs()
	if len(runs) < 2 {
		return []Hunk{h}
	}
	pieces := make([]Hunk, len(runs))
	for i, r := range runs {
		from, to := 0, len(h.Lines)
		if i > 0 {
			from = max(runs[i-1].to, r.from-ContextLines)
		}
		if i < len(runs)-1 {
			to = min(runs[i+1].from, r.to+ContextLines)
		}
		pieces[i] = h.cut(from, to)
	}
	return pieces
}

// run is a run of changed lines of a hunk: the indexes [from, to).
type run struct{ from, to int }

func (h *Hunk) runs() []run {
	var runs []run
	for i, l := range h.Lines {
		switch {
		case l.Op == Equal:
		case len(runs) > 0 && runs[len(runs)-1].to == i:
			runs[len(runs)-1].to++
		default:
			runs = append(runs, run{i, i + 1})
		}
	}
	return runs
}

// firstLines returns the indexes in the two files of the lines that the hunk begins at.
func (h *Hunk) firstLines() (oldAt, newAt int) {
	oldAt, newAt = h.OldStart-1, h.NewStart-1
	if h.OldLines == 0 {
		oldAt++
	}
	if h.NewLines == 0 {
		newAt++
	}
	return oldAt, newAt
}

// cut returns the lines [from, to) as a hunk.
func (h *Hunk) cut(from, to int) Hunk {
	oldAt, newAt := h.firstLines()
	for _, l := range h.Lines[:from] {
		if l.Op != Insert {
			oldAt++
		}
		if l.Op != Delete {
			newAt++
		}
	}
	c := Hunk{OldStart: oldAt + 1, NewStart: newAt + 1, Lines: h.Lines[from:to]}
	for _, l := range c.Lines {
		if l.Op != Insert {
			c.OldLines++
		}
		if l.Op != Delete {
			c.NewLines++
		}
	}
	if c.OldLines == 0 {
		c.OldStart--
	}
	if c.NewLines == 0 {
		c.NewStart--
	}
	return c
}

// Patched returns before with the changes of the hunks, or pieces of them, which are in the order
// of the file. Errors: Precondition if a hunk is not one of this text.
func Patched(before []byte, hunks []Hunk) ([]byte, error) {
	lines := SplitLines(string(before))
	var b strings.Builder
	done := 0 // lines of before that are written or deleted
	for _, h := range hunks {
		at, _ := h.firstLines()
		for _, l := range h.Lines {
			switch {
			case l.Op == Insert:
			case at < 0 || at >= len(lines) || lines[at] != l.Text:
				return nil, errNotOfText
			case l.Op == Equal:
				at++
				continue
			}
			if at < done || at > len(lines) {
				return nil, errNotOfText
			}
			for ; done < at; done++ {
				b.WriteString(lines[done])
			}
			if l.Op == Insert {
				b.WriteString(l.Text)
				continue
			}
			at++
			done = at
		}
	}
	for _, line := range lines[done:] {
		b.WriteString(line)
	}
	return []byte(b.String()), nil
}

var errNotOfText = errdefs.New(errdefs.Precondition, "hunk: it is not one of this text")
