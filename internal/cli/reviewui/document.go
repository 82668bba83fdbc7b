package reviewui

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// maxLine is how many bytes of a line are shown: a minified file may be one line.
const maxLine = 4096

// document is a change as it is shown: text without control characters.
type document struct {
	unified []docRow
	split   []docRow
	hunks   []string // ids of what can be staged by itself, in order
}

// docRow is a line of a document. A line of a hunk has a left side, a right side or both; any other
// line has text that goes across.
type docRow struct {
	across      line
	kind        gitpatch.Kind // of across
	hunk        int           // that begins here, from 1; 0 for another line
	left, right *cell
}

// cell is a line of one side.
type cell struct {
	op     textdiff.Op
	number int
	text   line
}

// line is text in pieces of one style.
type line []span

type span struct {
	text  string
	style string // parameters of SGR, "" for none
}

func newDocument(parts []part) *document {
	d := &document{}
	ids := hunk.Set{}
	if len(parts) == 1 {
		ids = hunk.Of(&parts[0].file, &parts[0].content)
	}
	for i := range parts {
		d.add(&parts[i], ids)
	}
	return d
}

// begin makes the last line the beginning of a hunk, which an apply can take by itself.
func (d *document) begin(id string) {
	d.hunks = append(d.hunks, id)
	d.unified[len(d.unified)-1].hunk, d.split[len(d.split)-1].hunk = len(d.hunks), len(d.hunks)
}

func (d *document) say(kind gitpatch.Kind, text string) {
	r := docRow{kind: kind, across: line{{text: printable(text)}}}
	d.unified, d.split = append(d.unified, r), append(d.split, r)
}

func (d *document) add(p *part, ids hunk.Set) {
	d.say(gitpatch.Header, describe(&p.file))
	if ids.Mode != "" {
		d.begin(ids.Mode)
	}
	hunks, escaped := textdiff.EscapeHunks(p.content.Hunks)
	rest := p.content
	rest.Hunks = nil
	gitpatch.Lines(&p.file, &rest, true, func(l gitpatch.Line) {
		if l.Kind == gitpatch.Context || l.Kind == gitpatch.Warning {
			d.say(l.Kind, l.Text)
		}
	})
	if escaped {
		d.say(gitpatch.Warning, "control characters are shown escaped")
	}
	lexer := newHighlighter(p.file.Path.Base())
	for i, h := range hunks {
		d.say(gitpatch.Hunk, h.Header())
		if ids.HasParts() {
			d.begin(ids.Text[i].ID)
		}
		d.hunk(h, lexer)
	}
}

// describe says what became of a path.
func describe(f *review.FileDiff) string {
	if f.Old != nil && f.New != nil && f.Old.Mode == f.New.Mode {
		return "changed " + record.TypeName(f.New.Mode)
	}
	return gitpatch.Describe(f)
}

// hunk adds the lines of a hunk to both forms.
func (d *document) hunk(h textdiff.Hunk, hl *highlighter) {
	cells, numbers := cellsOf(h, hl)
	var gone, come []*cell
	flush := func() {
		for i := range max(len(gone), len(come)) {
			var r docRow
			if i < len(gone) {
				r.left = gone[i]
			}
			if i < len(come) {
				r.right = come[i]
			}
			d.split = append(d.split, r)
		}
		gone, come = nil, nil
	}
	for i := range cells {
		c := &cells[i]
		switch c.op {
		case textdiff.Delete:
			d.unified = append(d.unified, docRow{left: c})
			if len(come) > 0 {
				flush()
			}
			gone = append(gone, c)
		case textdiff.Insert:
			d.unified = append(d.unified, docRow{right: c})
			come = append(come, c)
		default:
			flush()
			r := docRow{left: c, right: &cell{c.op, numbers[i], c.text}}
			d.unified, d.split = append(d.unified, r), append(d.split, r)
		}
		if !strings.HasSuffix(h.Lines[i].Text, "\n") {
			d.unified = append(d.unified, docRow{across: line{{text: `\ No newline at end of file`}}})
		}
	}
	flush()
}

// cellsOf numbers the lines of a hunk. numbers are those of the new side.
func cellsOf(h textdiff.Hunk, hl *highlighter) (cells []cell, numbers []int) {
	texts := make([]string, len(h.Lines))
	for i, l := range h.Lines {
		texts[i] = shorten(printable(strings.TrimRight(l.Text, "\r\n")))
	}
	lines := hl.lines(h, texts)
	cells, numbers = make([]cell, len(texts)), make([]int, len(texts))
	oldAt, newAt := h.OldStart, h.NewStart
	for i, l := range h.Lines {
		cells[i] = cell{op: l.Op, number: oldAt, text: lines[i]}
		numbers[i] = newAt
		if l.Op == textdiff.Insert {
			cells[i].number = newAt
		}
		if l.Op != textdiff.Insert {
			oldAt++
		}
		if l.Op != textdiff.Delete {
			newAt++
		}
	}
	return cells, numbers
}

// tabStop is how many columns a tab leads to a multiple of.
const tabStop = 4

// printable replaces tabs by spaces. The text is escaped already; what a terminal could obey after
// all is escaped here.
func printable(text string) string {
	text, _ = textdiff.Escape(text)
	if !strings.Contains(text, "\t") {
		return text
	}
	var b strings.Builder
	column := 0
	for i, piece := range strings.Split(text, "\t") {
		if i > 0 {
			n := tabStop - column%tabStop
			b.WriteString(strings.Repeat(" ", n))
			column += n
		}
		b.WriteString(piece)
		column += ansi.StringWidth(piece)
	}
	return b.String()
}

// shorten cuts what is too long to be read.
func shorten(text string) string {
	if len(text) <= maxLine {
		return text
	}
	head := strings.ToValidUTF8(text[:maxLine], "")
	return fmt.Sprintf("%s… (%d more bytes)", head, len(text)-len(head))
}
