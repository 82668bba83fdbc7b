package docs_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// columns is the width of the recorded terminal.
const columns = 100

// mark is what a recorded shell shows before each prompt. A terminal takes it for
// the title of its window.
const mark = "\x1b]0;prompt\a"

// span is text in one style, a CSS class of the picture.
type span struct{ style, text string }

// line is what a terminal shows in one line.
type line []span

// shownStep is a command, with its prompt in front, and what it showed.
type shownStep []line

// styles are the graphic renditions (ECMA-48 SGR) that the program uses.
var styles = map[string]string{
	"": "", "0": "", "1": "bold", "31": "red", "32": "green", "33": "yellow", "36": "cyan",
}

// interpret does with the output of a session what a terminal does. An error for
// a control sequence that it does not know: the picture would be wrong.
func interpret(shown string) ([]shownStep, error) {
	var steps []shownStep
	for i, part := range strings.Split(shown, mark) {
		if i == 0 && part == "" {
			continue
		}
		var step shownStep
		style := ""
		for text := range strings.Lines(part) {
			l, after, err := interpretLine(strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), style)
			if err != nil {
				return nil, err
			}
			style = after
			step = append(step, l)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// interpretLine is interpret for a line that begins in a style. It returns the
// style at the end too.
func interpretLine(text, style string) (line, string, error) {
	var l line
	column := 0
	for text != "" {
		plain, rest, found := strings.Cut(text, "\x1b[")
		plain = expandTabs(plain, &column)
		if i := strings.IndexFunc(plain, func(r rune) bool { return r < ' ' }); i >= 0 {
			return nil, "", fmt.Errorf("control character %q in %q", plain[i], plain)
		}
		if plain != "" {
			l = append(l, span{style, plain})
		}
		if !found {
			break
		}
		parameters, after, isSGR := strings.Cut(rest, "m")
		next, known := styles[parameters]
		if !isSGR || !known {
			return nil, "", fmt.Errorf("control sequence ESC [ %.20q: add it to styles", rest)
		}
		style, text = next, after
	}
	if column > columns {
		return nil, "", fmt.Errorf("%d columns, the terminal has %d: %q", column, columns, l)
	}
	return l, style, nil
}

// expandTabs replaces tabs by the spaces up to the next stop, and counts columns.
func expandTabs(text string, column *int) string {
	var b strings.Builder
	for _, r := range text {
		width := 1
		if r == '\t' {
			width, r = 8-*column%8, ' '
		}
		b.WriteString(strings.Repeat(string(r), width))
		*column += width
	}
	return b.String()
}

// The picture is readable in light and dark, and without fonts of its own. A
// viewer that animates shows one step after the other, unless its user asked for
// less motion.
const (
	head = `<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img">
<title>A terminal session with agentfense: run, diff, apply and discard</title>
<style>
rect { fill: #f6f8fa; stroke: #d1d9e0; }
text { fill: #1f2328; font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 14px; }
.command, .bold { font-weight: bold; }
.red { fill: #a40e26; }
.green { fill: #116329; }
.yellow { fill: #7d4e00; }
.cyan { fill: #0a5a73; }
@media (prefers-color-scheme: dark) {
rect { fill: #0d1117; stroke: #3d444d; }
text { fill: #e6edf3; }
.red { fill: #ff9492; }
.green { fill: #4ae168; }
.yellow { fill: #f0b72f; }
.cyan { fill: #56d4dd; }
}
@media (prefers-reduced-motion: no-preference) {
g { animation: appear 0.3s backwards; }
@keyframes appear { from { opacity: 0; } }
}
</style>
<rect x="0.5" y="0.5" width="%[3]d" height="%[4]d" rx="6"/>
`
	tail = "</svg>\n"
)

// Sizes in pixels, and the pause between two steps in milliseconds.
const (
	columnWidth, lineHeight = 8.45, 20
	margin, gap             = 16, 10
	pause                   = 1200
)

// draw returns the picture of a session, as SVG.
func draw(steps []shownStep) []byte {
	width, height := 2*margin+int(columns*columnWidth), 2*margin-gap
	for _, step := range steps {
		height += len(step)*lineHeight + gap
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, head, width, height, width-1, height-1)
	y := margin - 5
	for i, step := range steps {
		fmt.Fprintf(&b, "<g style=\"animation-delay: %dms\">\n", i*pause)
		for j, l := range step {
			y += lineHeight
			if j == 0 {
				l = line{{"command", textOfLine(l)}}
			}
			fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\">%s</text>\n", margin, y, spans(l))
		}
		b.WriteString("</g>\n")
		y += gap
	}
	b.WriteString(tail)
	return b.Bytes()
}

func textOfLine(l line) string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.text)
	}
	return b.String()
}

// spans returns the content of a line's element.
func spans(l line) string {
	var b bytes.Buffer
	for _, s := range l {
		if s.style != "" {
			fmt.Fprintf(&b, "<tspan class=%q>", s.style)
		}
		if err := xml.EscapeText(&b, []byte(s.text)); err != nil {
			panic(err) // a buffer takes everything
		}
		if s.style != "" {
			b.WriteString("</tspan>")
		}
	}
	return b.String()
}

func TestInterpret(t *testing.T) {
	got, err := interpret(mark + "$ ls\r\n\x1b[31mred\x1b[m, a\tb\r\n\r\n" + mark + "$ true\r\n")
	want := []shownStep{
		{{{"", "$ ls"}}, {{"red", "red"}, {"", ", a  b"}}, nil},
		{{{"", "$ true"}}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(span{})); diff != "" || err != nil {
		t.Errorf("interpret: %v (-want +got):\n%s", err, diff)
	}
	for name, shown := range map[string]string{
		"a cursor movement":       "\x1b[2Aup",
		"an unknown colour":       "\x1b[35mx",
		"a return to the margin":  "50%\r100%",
		"a line that is too long": strings.Repeat("x", columns+1),
	} {
		if steps, err := interpret(mark + shown); err == nil {
			t.Errorf("%s: interpret = %q, want an error", name, steps)
		}
	}
}

func TestDraw(t *testing.T) {
	picture := draw([]shownStep{{{{"", "$ cat <a> & b"}}, {{"green", "+x"}, {"", " y"}}}, {{{"", "$ true"}}}})
	if diff := cmp.Diff([]string{"$ cat <a> & b", "+x y", "$ true"}, textOf(t, picture)); diff != "" {
		t.Errorf("text of the picture (-want +got):\n%s", diff)
	}
	if !utf8.Valid(picture) || bytes.Contains(picture, []byte("<script")) || bytes.Contains(picture, []byte("url(")) {
		t.Error("the picture has scripts or takes something from elsewhere")
	}
}
