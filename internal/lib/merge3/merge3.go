// Package merge3 merges two versions of a text that began with the same one, by lines.
//
// It is pure: bytes in, bytes out. It finds the conflicts that "git merge-file" finds, and its text
// has the same bytes: it compares lines with the same choices (see compare.go), changes that touch
// each other are in conflict, and of a conflict only the lines that differ between the two versions
// are left. Lines end in "\n"; a carriage return and bytes that are not UTF-8 are content like any
// other. It does not merge a binary or a large file. Its time is bounded for any content: texts
// that differ in too many places are compared less thoroughly, and have more conflicts than in git.
package merge3

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
)

// MaxBytes is the largest version that Lines merges.
const MaxBytes = 16 << 20

// Refusal is why versions cannot be merged by lines.
type Refusal string

// The refusals.
const (
	Binary   Refusal = "binary"
	TooLarge Refusal = "too large"
)

// Result is a merge of two versions.
type Result struct {
	// Clean says that there is no conflict, and Text is the merged text.
	Clean bool
	Text  []byte
	// Conflicts are the places at which the versions contradict each other, in their order.
	Conflicts []Conflict
	// Refused is why the versions cannot be merged by lines; "" if they can. It is never set if one
	// of them has the other's change or no change.
	Refused Refusal
	// Rough says that the versions differ in so many places that they were not compared thoroughly.
	// The merge is right, but a thorough one could have fewer conflicts.
	Rough bool

	ours, theirs []byte
	ourLines     []string
	theirLines   []string
	chunks       []chunk
	newline      []string // of the markers of each chunk
}

// Conflict is a place at which the versions contradict each other. A span without lines is before
// the line at Start.
type Conflict struct{ Ours, Theirs Span }

// Span is a run of lines, counted from 0.
type Span struct{ Start, End int }

// Lines merges what ours and theirs made of base. Its error is that of ctx, if this ends before.
func Lines(ctx context.Context, base, ours, theirs []byte) (Result, error) {
	r := Result{ours: ours, theirs: theirs}
	switch {
	case bytes.Equal(ours, theirs) || bytes.Equal(base, theirs):
		r.Clean, r.Text = true, ours
		return r, nil
	case bytes.Equal(base, ours):
		r.Clean, r.Text = true, theirs
		return r, nil
	}
	for _, version := range [][]byte{base, ours, theirs} {
		if len(version) > MaxBytes {
			r.Refused = TooLarge
			return r, nil
		}
		if textdiff.IsBinary(version) {
			r.Refused = Binary
			return r, nil
		}
	}
	work := newBudget(ctx)
	r.merge(textdiff.SplitLines(string(base)), work)
	if work.err != nil {
		return Result{}, work.err
	}
	return r, nil
}

// merge compares the versions and sets what follows from that.
func (r *Result) merge(base []string, work *budget) {
	r.ourLines, r.theirLines = textdiff.SplitLines(string(r.ours)), textdiff.SplitLines(string(r.theirs))
	all := texts{}
	began, ours, theirs := all.number(base), all.number(r.ourLines), all.number(r.theirLines)
	r.chunks = combine(compare(began, ours, work), compare(began, theirs, work), ours, theirs)
	r.chunks = r.refine(ours, theirs, work)
	if r.Rough = work.isUsedUp(); work.ended() {
		return
	}
	for _, c := range r.chunks {
		r.newline = append(r.newline, r.markerEnd(c, base))
		if c.from == both {
			r.Conflicts = append(r.Conflicts, Conflict{c.ours, c.theirs})
		}
	}
	if r.Clean = len(r.Conflicts) == 0; r.Clean {
		r.Text = r.render(func(*strings.Builder, chunk, string) {})
	}
}

// Ours returns the merged text with our lines at the conflicts; our version if the merge is
// refused.
func (r *Result) Ours() []byte {
	if r.Refused != "" {
		return r.ours
	}
	return r.resolved(func(b *strings.Builder, c chunk, _ string) { r.copyOurs(b, c.ours, "") })
}

// Theirs is Ours with their lines.
func (r *Result) Theirs() []byte {
	if r.Refused != "" {
		return r.theirs
	}
	return r.resolved(func(b *strings.Builder, c chunk, _ string) { copyLines(b, r.theirLines, c.theirs, "") })
}

// Markers returns the merged text with both versions at the conflicts, between markers with the
// labels; nil if the merge is refused.
func (r *Result) Markers(ours, theirs string) []byte {
	if r.Refused != "" {
		return nil
	}
	return r.resolved(func(b *strings.Builder, c chunk, newline string) {
		b.WriteString("<<<<<<< " + ours + newline)
		r.copyOurs(b, c.ours, newline)
		b.WriteString("=======" + newline)
		copyLines(b, r.theirLines, c.theirs, newline)
		b.WriteString(">>>>>>> " + theirs + newline)
	})
}

// resolved returns the text with put's lines at the conflicts.
func (r *Result) resolved(put func(b *strings.Builder, c chunk, newline string)) []byte {
	if r.Clean {
		return r.Text
	}
	return r.render(put)
}

// render writes the text, with put at each conflict.
func (r *Result) render(put func(b *strings.Builder, c chunk, newline string)) []byte {
	var b strings.Builder
	at := 0 // in our lines
	for i, c := range r.chunks {
		if c.from == neither {
			continue // our lines are as theirs
		}
		r.copyOurs(&b, Span{at, c.ours.Start}, "")
		switch c.from {
		case oursOnly:
			r.copyOurs(&b, c.ours, "")
		case theirsOnly:
			copyLines(&b, r.theirLines, c.theirs, "")
		default:
			put(&b, c, r.newline[i])
		}
		at = c.ours.End
	}
	r.copyOurs(&b, Span{at, len(r.ourLines)}, "")
	return []byte(b.String())
}

func (r *Result) copyOurs(b *strings.Builder, s Span, newline string) {
	copyLines(b, r.ourLines, s, newline)
}

// copyLines writes lines, and newline after a last one that has none.
func copyLines(b *strings.Builder, lines []string, s Span, newline string) {
	for _, line := range lines[s.Start:s.End] {
		b.WriteString(line)
	}
	if s.End > s.Start && !strings.HasSuffix(lines[s.End-1], "\n") {
		b.WriteString(newline)
	}
}

// markerEnd returns how the markers of a conflict end: as the lines around it do.
func (r *Result) markerEnd(c chunk, base []string) string {
	sides := []func() (crlf, known bool){
		func() (bool, bool) { return endsCRLF(r.ourLines, max(c.ours.Start-1, 0)) },
		func() (bool, bool) { return endsCRLF(r.theirLines, max(c.theirs.Start-1, 0)) },
		func() (bool, bool) { return endsCRLF(base, 0) },
	}
	crlf := false
	for _, side := range sides {
		is, known := side()
		if known && !is {
			return "\n"
		}
		crlf = is && known
	}
	if crlf {
		return "\r\n"
	}
	return "\n"
}

// endsCRLF reports whether the line i ends in CRLF; without a newline, whether the one before does.
func endsCRLF(lines []string, i int) (crlf, known bool) {
	if i < len(lines) && !strings.HasSuffix(lines[i], "\n") {
		i--
	}
	if i < 0 || i >= len(lines) {
		return false, false
	}
	return strings.HasSuffix(lines[i], "\r\n"), true
}

// texts numbers different lines.
type texts map[string]int

func (t texts) number(lines []string) []int {
	numbers := make([]int, len(lines))
	for i, line := range lines {
		n, is := t[line]
		if !is {
			n = len(t)
			t[line] = n
		}
		numbers[i] = n
	}
	return numbers
}

// isSame reports whether two spans have the same lines.
func isSame(a []int, in Span, b []int, as Span) bool {
	return slices.Equal(a[in.Start:in.End], b[as.Start:as.End])
}
