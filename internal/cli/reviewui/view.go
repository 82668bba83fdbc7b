package reviewui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

// twoPanes is the width from which on the diff is beside the list.
const twoPanes = 80

// View draws the screen. Bubble Tea leaves colours out where NO_COLOR asks for that.
func (m *model) View() tea.View {
	v := tea.NewView(m.draw())
	v.AltScreen = true
	v.WindowTitle = "agentfense review"
	return v
}

func (m *model) draw() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	lines := []string{m.title()}
	switch m.mode {
	case answering:
		for _, l := range m.dialogLines() {
			lines = append(lines, fit(l, m.width, 0))
		}
	case reading:
		text := m.wrapped()
		end := min(len(text), m.textTop+max(0, m.height-2))
		for _, l := range text[min(m.textTop, end):end] {
			lines = append(lines, fit(line{{text: l}}, m.width, 0))
		}
	default:
		lines = append(lines, m.body()...)
	}
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, m.height-1)], m.footer())
	return strings.Join(lines, "\n")
}

// title is the first line.
func (m *model) title() string {
	name := m.o.Name
	if m.o.Mount != "" {
		name += " in " + m.o.Mount
	}
	text := fmt.Sprintf(" review %s · %s · %d staged", name, review.Count(len(m.files), "change"), len(m.staged))
	if m.running {
		text += " · running"
	}
	if n := len(m.asks.waiting); n > 0 {
		text += fmt.Sprintf(" · %d waiting for your answer (a)", n)
	}
	if m.filter != "" {
		text += " · /" + m.filter
	}
	if m.lost != nil {
		text += " · " + m.lost.Error()
	}
	return fit(line{{padded(printable(text), m.width), "7"}}, m.width, 0)
}

// footer is the last line.
func (m *model) footer() string {
	l := line{{" Space stage · Tab diff · A apply · d discard · n refusals · ? help · q quit", "90"}}
	if m.inDiff {
		l[0].text = " Tab list · A apply · ? help · q quit"
		if m.doc != nil && len(m.doc.hunks) > 0 {
			l[0].text = " Space stage hunk · ] next · [ previous · Tab list · A apply · ? help · q quit"
		}
	}
	switch {
	case m.mode == filtering:
		l = line{{" /" + m.filter + "█", "1"}}
	case m.mode == asking:
		l = line{{" " + printable(m.question) + " [y/N] ", "1;33"}}
	case m.mode == answering:
		l = m.dialogFooter()
	case m.mode == reading:
		l = line{{" any key: back", "90"}}
		if len(m.wrapped()) > m.height-2 {
			l[0].text = " ↑ ↓ scroll · any other key: back"
		}
	case m.status != "":
		l = line{{" " + printable(m.status), "1"}}
	case m.busy:
		l = line{{" reading …", "1"}}
	}
	return fit(l, m.width, 0)
}

// wrapped is the text that is read, in lines that fit on the screen.
func (m *model) wrapped() []string {
	var lines []string
	for _, text := range m.text {
		lines = append(lines, strings.Split(ansi.Wrap(printable(text), m.width, ""), "\n")...)
	}
	return lines
}

// bodyHeight is the height of list and diff.
func (m *model) bodyHeight() int {
	return max(1, m.height-2-m.panelHeight())
}

// panelHeight is that of the panel with its title, 0 if it is not shown.
func (m *model) panelHeight() int {
	if !m.panel.shown || m.height < 8 {
		return 0
	}
	return m.height / 3
}

func (m *model) body() []string {
	height := m.bodyHeight()
	var lines []string
	switch {
	case m.width >= twoPanes:
		left := max(30, min(60, m.width*2/5))
		list, diff := m.list(left, height), m.diff(m.width-left-1, height)
		for i := range height {
			lines = append(lines, list[i]+sgr("90", "│")+diff[i])
		}
	case m.inDiff:
		lines = m.diff(m.width, height)
	default:
		lines = m.list(m.width, height)
	}
	if h := m.panelHeight(); h > 0 {
		lines = append(lines, fit(line{{padded(" Asks, refusals and network", m.width), "7"}}, m.width, 0))
		for _, l := range m.panelLines(h - 1) {
			lines = append(lines, fit(append(line{{" ", ""}}, l...), m.width, 0))
		}
	}
	return lines
}

// list draws the rows around the cursor.
func (m *model) list(width, height int) []string {
	m.top = max(0, min(m.top, len(m.rows)-height))
	if m.cursor < m.top {
		m.top = m.cursor
	} else if m.cursor >= m.top+height {
		m.top = m.cursor - height + 1
	}
	if m.top == 1 && m.cursor == 1 { // show its title, too
		m.top = 0
	}
	lines := make([]string, height)
	for i := range lines {
		l := line{}
		if at := m.top + i; at < len(m.rows) {
			l = m.rowLine(m.rows[at])
			if at == m.cursor {
				l = selected(l, width, !m.inDiff)
			}
		} else if i == 0 && len(m.rows) == 0 {
			l = line{{m.emptyText(), "90"}}
		}
		lines[i] = fit(l, width, 0)
	}
	return lines
}

func (m *model) emptyText() string {
	switch {
	case !m.loaded:
		return " reading …"
	case m.filter != "":
		return " no name has this text"
	}
	return " nothing is changed"
}

// selected marks the line of the cursor.
func selected(l line, width int, active bool) line {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	style := "7"
	if !active {
		style = "4"
	}
	return line{{padded(b.String(), width), style}}
}

func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

var riskStyles = [...]string{runsOnHost: "1;31", trustedLater: "1;33", ordinary: "1", grouped: "1;34", notApplied: "1;90"}

func (m *model) rowLine(r row) line {
	s := &m.sections[r.section]
	if r.file < 0 {
		fold := "▾ "
		if s.folded && m.filter == "" {
			fold = "▸ "
		}
		title := s.title
		if s.kind != grouped {
			title = fmt.Sprintf("%s: %s", title, review.Count(len(s.files), "file"))
		}
		return line{{fold + m.sectionMark(s) + " " + printable(title), riskStyles[s.kind]}}
	}
	f := &m.files[r.file]
	l := line{{"  " + m.fileMark(f) + " ", m.markStyle(f)}, {f.Status.String() + " ", statusStyles[f.Status.String()]}, {printable(fileText(f, m.o.Mount)), ""}}
	if reason := fileReason(f); reason != "" {
		l = append(l, span{"  " + printable(reason), riskStyles[min(s.kind, trustedLater)]})
	}
	return l
}

var statusStyles = map[string]string{"A": "32", "D": "31", "M": "36", "T": "35"}

func (m *model) fileMark(f *review.FileDiff) string {
	switch _, is := m.staged[f.Path]; {
	case f.LeftOut != "":
		return "   "
	case is && m.parts[f.Path] != nil:
		return "[~]"
	case is:
		return "[x]"
	case m.differs[f.Path]:
		return "[!]"
	}
	return "[ ]"
}

func (m *model) markStyle(f *review.FileDiff) string {
	if m.differs[f.Path] {
		return "1;33"
	}
	return "32"
}

// sectionMark says how much of a section is staged.
func (m *model) sectionMark(s *section) string {
	if s.kind == notApplied {
		return "   "
	}
	whole, parts := 0, 0
	for _, i := range s.files {
		switch path := m.files[i].Path; {
		case m.isWhole(path):
			whole++
		case m.parts[path] != nil:
			parts++
		}
	}
	switch {
	case whole+parts == 0:
		return "[ ]"
	case whole == len(s.files):
		return "[x]"
	}
	return "[~]"
}

// lines are those of the document that are shown.
func (m *model) lines() []docRow {
	switch {
	case m.doc == nil:
		return nil
	case m.split:
		return m.doc.split
	}
	return m.doc.unified
}

// diff draws the document, below the name of its file.
func (m *model) diff(width, height int) []string {
	out := make([]string, height)
	head := line{}
	if f := m.current(); f != nil {
		head = line{{" " + printable(fileText(f, m.o.Mount)), "1"}}
		if reason := fileReason(f); reason != "" {
			head = append(head, span{"  " + printable(reason), riskStyles[min(kindOf(f), trustedLater)]})
		}
	}
	out[0] = fit(head, width, 0)
	lines := m.lines()
	for i := 1; i < height; i++ {
		at := m.docTop + i - 1
		switch {
		case at < len(lines):
			out[i] = m.docLine(&lines[at], width)
		case i == 1 && m.docErr != nil:
			out[i] = fit(line{{" " + printable(m.docErr.Error()), "31"}}, width, 0)
		case i == 1 && m.path != "" && m.doc == nil:
			out[i] = fit(line{{" reading …", "90"}}, width, 0)
		default:
			out[i] = strings.Repeat(" ", width)
		}
	}
	return out
}

var kindStyles = map[gitpatch.Kind]string{gitpatch.Header: "1", gitpatch.Hunk: "36", gitpatch.Warning: "33"}

func (m *model) docLine(r *docRow, width int) string {
	switch {
	case r.hunk > 0:
		return fit(append(line{{" ", ""}, m.hunkMark(r)}, styled(r.across, kindStyles[r.kind])...), width, 0)
	case r.left == nil && r.right == nil:
		return fit(styled(append(line{{" ", ""}}, r.across...), kindStyles[r.kind]), width, 0)
	case m.split:
		half := (width - 1) / 2
		return m.cell(r.left, half) + sgr("90", "│") + m.cell(r.right, width-half-1)
	case r.right == nil:
		return m.cell(r.left, width)
	}
	return m.cell(r.right, width)
}

func styled(l line, style string) line {
	out := make(line, len(l))
	for i, s := range l {
		out[i] = span{s.text, style}
	}
	return out
}

// cell draws a line of one side.
func (m *model) cell(c *cell, width int) string {
	if c == nil {
		return strings.Repeat(" ", max(0, width))
	}
	gutter := fmt.Sprintf("%5d %c", c.number, c.op)
	if width < 30 {
		gutter = string(rune(c.op))
	}
	style, background := "90", ""
	switch c.op {
	case textdiff.Insert:
		style, background = "32", m.background("48;5;22", "48;5;194")
	case textdiff.Delete:
		style, background = "31", m.background("48;5;52", "48;5;224")
	}
	text := fitOn(c.text, width-len(gutter), m.left, background)
	return ansi.Truncate(sgr(style, gutter)+text, width, "")
}

func (m *model) background(dark, light string) string {
	if m.dark {
		return dark
	}
	return light
}

// fit draws a line in exactly width columns, from the column left on.
func fit(l line, width, left int) string { return fitOn(l, width, left, "") }

func fitOn(l line, width, left int, background string) string {
	if width <= 0 {
		return ""
	}
	var b strings.Builder
	for _, s := range l {
		b.WriteString(sgr(join(s.style, background), s.text))
	}
	text := b.String()
	if left > 0 {
		text = ansi.TruncateLeft(text, left, "")
	}
	if ansi.StringWidth(text) > width {
		text = ansi.Truncate(text, width, "…")
	}
	return text + sgr(background, strings.Repeat(" ", max(0, width-ansi.StringWidth(text))))
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ";" + b
}

// sgr is text in a style.
func sgr(style, text string) string {
	if style == "" || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[m"
}

// nameOf is a path as the screen shows it.
func (m *model) nameOf(path vpath.Path) string { return present.WrittenIn(m.o.Mount, path) }
