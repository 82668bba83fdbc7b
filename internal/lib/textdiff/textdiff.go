// Package textdiff makes unified diffs in the format git reads and writes.
//
// It is pure: bytes in, hunks and text out. Text is bytes split at "\n"; a
// carriage return and bytes that are not UTF-8 are content like any other.
// Hunks never alter what they carry; Escape makes text safe to show, and its
// result is no longer a patch.
package textdiff

import (
	"bytes"
	"fmt"
	"strings"
)

const (
	// ContextLines is how many unchanged lines surround a change (git's -U3).
	ContextLines = 3
	// SizeLimit is the largest side, in bytes, that callers should compare.
	SizeLimit = 1 << 20
	// binaryProbe is how far a NUL makes a file binary (git's
	// FIRST_FEW_BYTES, xdiff-interface.c).
	binaryProbe = 8000
)

// IsBinary reports whether content holds a NUL near its start: what git calls
// binary.
func IsBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), binaryProbe)], 0) >= 0
}

// Op says on which side of a diff a line stands, as its first column shows.
type Op byte

// The operations.
const (
	Equal  Op = ' '
	Delete Op = '-'
	Insert Op = '+'
)

// Line is one line of a hunk. Text ends in "\n" unless the file ends without.
type Line struct {
	Op   Op
	Text string
}

// Hunk is a run of changed lines with its context. Lines are counted from 1;
// a side without lines starts at the line before it, as git has it.
type Hunk struct {
	OldStart, OldLines int
	NewStart, NewLines int
	Lines              []Line
}

// Header returns the hunk's "@@ -1,3 +1,4 @@" without a newline.
func (h Hunk) Header() string {
	return fmt.Sprintf("@@ -%s +%s @@", span(h.OldStart, h.OldLines), span(h.NewStart, h.NewLines))
}

func span(start, lines int) string {
	if lines == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d,%d", start, lines)
}

// String returns the hunk as a patch has it.
func (h Hunk) String() string {
	var b strings.Builder
	b.WriteString(h.Header())
	b.WriteByte('\n')
	for _, l := range h.Lines {
		b.WriteByte(byte(l.Op))
		b.WriteString(l.Text)
		if !strings.HasSuffix(l.Text, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return b.String()
}

// Unified returns the diff from before to after under the two names, quoted
// already by the caller where they need it (see QuoteName); "" if they are
// equal.
func Unified(oldName, newName string, before, after []byte) string {
	hunks := Hunks(before, after)
	if len(hunks) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", oldName, newName)
	for _, h := range hunks {
		b.WriteString(h.String())
	}
	return b.String()
}

// Hunks returns what turns before into after, with ContextLines around each
// change; none if they are equal.
func Hunks(before, after []byte) []Hunk {
	a, b := SplitLines(string(before)), SplitLines(string(after))
	var hunks []Hunk
	edits := compare(a, b)
	for len(edits) > 0 {
		n := 1
		for n < len(edits) && edits[n].oldStart-edits[n-1].oldEnd <= 2*ContextLines {
			n++
		}
		hunks = append(hunks, makeHunk(a, b, edits[:n]))
		edits = edits[n:]
	}
	return hunks
}

// makeHunk builds the hunk of edits that lie close together.
func makeHunk(a, b []string, edits []edit) Hunk {
	first, last := edits[0], edits[len(edits)-1]
	from := max(0, first.oldStart-ContextLines)
	to := min(len(a), last.oldEnd+ContextLines)
	h := Hunk{
		OldStart: from + 1, OldLines: to - from,
		NewStart: first.newStart - (first.oldStart - from) + 1,
	}
	at := from
	for _, e := range edits {
		h.add(Equal, a[at:e.oldStart])
		h.add(Delete, a[e.oldStart:e.oldEnd])
		h.add(Insert, b[e.newStart:e.newEnd])
		at = e.oldEnd
	}
	h.add(Equal, a[at:to])
	for _, l := range h.Lines {
		if l.Op != Delete {
			h.NewLines++
		}
	}
	if h.OldLines == 0 {
		h.OldStart--
	}
	if h.NewLines == 0 {
		h.NewStart--
	}
	return h
}

func (h *Hunk) add(op Op, lines []string) {
	for _, text := range lines {
		h.Lines = append(h.Lines, Line{Op: op, Text: text})
	}
}

// Count returns how many lines the hunks insert and delete.
func Count(hunks []Hunk) (inserted, deleted int) {
	for _, h := range hunks {
		for _, l := range h.Lines {
			switch l.Op {
			case Insert:
				inserted++
			case Delete:
				deleted++
			}
		}
	}
	return inserted, deleted
}

// SplitLines cuts text after each newline; the last line may lack one.
func SplitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
