package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Widths of the table's columns, in characters.
const (
	titleWidth = 40
	valueWidth = 9
	ratioWidth = 8
	cellWidth  = valueWidth + ratioWidth + 2
	askedWidth = 20
)

// writeTable prints two lines a row: medians and ratios, and beneath them the
// spread.
func writeTable(w io.Writer, res result) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", res.heading())
	b.WriteString("Each cell: the median, and its ratio to native; beneath, the least and the most of the rounds.\n")
	if res.Rounds < 3 {
		b.WriteString("Fewer than three rounds: the numbers show the order of magnitude only.\n")
	}
	if res.Machine.busy() {
		fmt.Fprintf(&b, "The machine was busy before the first round (load %.1f): the numbers are noisy.\n", res.Machine.Load)
	}
	group := ""
	for _, m := range res.Rows {
		if m.Group != group {
			group = m.Group
			writeLine(&b, "\n"+group, headings(res.Places), "asked", "met")
		}
		writeRow(&b, res.Places, m)
	}
	writeVerdict(&b, res)
	for _, n := range res.Notes {
		fmt.Fprintf(&b, "note: %s\n", strings.ReplaceAll(n, "\n", "\n      "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func headings(places []string) []string {
	cells := make([]string, len(places))
	for i, p := range places {
		cells[i] = right(p, valueWidth+ratioWidth)
	}
	return cells
}

func writeRow(b *strings.Builder, places []string, m measured) {
	values, spreads := make([]string, len(places)), make([]string, len(places))
	for i, p := range places {
		s := m.Samples[p].Summary()
		if s.Count == 0 {
			values[i] = right("–", valueWidth)
			continue
		}
		values[i] = right(m.Unit.Format(s.Median), valueWidth) + right(ratioText(m, p), ratioWidth)
		spreads[i] = right(m.Unit.FormatRange(s.Min, s.Max), valueWidth+ratioWidth)
	}
	writeLine(b, "  "+m.Title, values, m.Bound.Text(m.Unit), string(m.verdict()))
	if strings.Join(spreads, "") != "" {
		writeLine(b, "", spreads, "", "")
	}
}

// ratioText is empty where there is nothing to compare with.
func ratioText(m measured, place string) string {
	q := m.Samples[place].RatioTo(m.Samples[nativeName])
	if place == nativeName || q == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f×", q)
}

func writeLine(b *strings.Builder, title string, cells []string, asked, met string) {
	var line strings.Builder
	line.WriteString(left(title, titleWidth))
	for _, c := range cells {
		line.WriteString(left(c, cellWidth))
	}
	line.WriteString("  " + left(asked, askedWidth) + met)
	b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}

func writeVerdict(b *strings.Builder, res result) {
	count := map[verdict]int{}
	var failed []string
	for _, m := range res.Rows {
		v := m.verdict()
		count[v]++
		if v == missed {
			failed = append(failed, m.ID)
		}
	}
	fmt.Fprintf(b, "\nof the bounds asked, %d met, %d missed, %d not measured", count[met], count[missed], count[notMeasured])
	if len(failed) > 0 {
		fmt.Fprintf(b, "; missed: %s", strings.Join(failed, " "))
	}
	b.WriteString("\n")
}

func left(s string, width int) string {
	// A heading begins with a line feed, which takes no room.
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(strings.TrimPrefix(s, "\n"))))
}

func right(s string, width int) string {
	return strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s))) + s
}

// progress shows what is going on, on a terminal only.
type progress struct {
	w    io.Writer
	show bool
}

func newProgress(f *os.File) *progress {
	return &progress{w: f, show: term.IsTerminal(int(f.Fd()))}
}

// Say replaces what was said before.
func (p *progress) Say(what string) {
	if p.show {
		fmt.Fprintf(p.w, "\r\x1b[K%s", what)
	}
}

// Done clears the line.
func (p *progress) Done() { p.Say("") }
