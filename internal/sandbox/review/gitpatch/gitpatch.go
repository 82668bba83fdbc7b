// Package gitpatch spells the change of a file as a unified diff in git's format: the
// text that a server sends of a file, and that people see between the marks and groups of
// a review. What git has no form for is in lines that start with "#".
package gitpatch

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// Kind is what a line is.
type Kind uint8

// The kinds of lines.
const (
	Context Kind = iota // of a file's content, and what is no other kind
	Header              // which file, and what becomes of it
	Hunk                // where in the file
	Old                 // a line that goes
	New                 // a line that comes
	Warning             // what the patch does not show
)

// Line is a line of a patch, without the newline at its end.
type Line struct {
	Kind Kind
	Text string
}

// notAPatch stands between a file's names and its first hunk where the hunks
// are escaped: git apply refuses a patch with such a line ("patch fragment
// without header"), so nobody applies the escapes in place of what they show.
const notAPatch = "# control characters are shown escaped: this is no patch"

// Write writes the change of a file, which git can apply as far as its content is
// known, and tells what there is to that content, with its hunks unless the type changed.
func Write(w io.Writer, r *review.Review, f *review.FileDiff) (review.Content, error) {
	b := bufio.NewWriter(w) // keeps the first error until Flush
	var sum review.Content
	parts := f.Parts()
	for _, part := range parts {
		c, err := r.Content(&part)
		if err != nil {
			return sum, err
		}
		if len(parts) == 1 {
			sum.Hunks = c.Hunks
		}
		Lines(&part, &c, false, func(l Line) {
			b.WriteString(l.Text)
			b.WriteByte('\n')
		})
		sum.Inserted, sum.Deleted = sum.Inserted+c.Inserted, sum.Deleted+c.Deleted
		sum.SHA256 = cmp.Or(c.SHA256, sum.SHA256)
		sum.Binary, sum.TooLarge, sum.Unknown = sum.Binary || c.Binary, sum.TooLarge || c.TooLarge, sum.Unknown || c.Unknown
	}
	return sum, b.Flush()
}

// Lines calls do with each line of the patch of f, one of the Parts of a change, whose
// content is c. With escape the control characters of the content are escaped, and git
// refuses the patch of such a file. Names are always quoted.
func Lines(f *review.FileDiff, c *review.Content, escape bool, do func(Line)) {
	if !isPatchable(f.Old) || !isPatchable(f.New) {
		do(Line{Header, fmt.Sprintf("# %s: %s", quote(f.Path), Describe(f))})
		return
	}
	header(f, do)
	content(f, c, escape, do)
}

// Rename calls do with each line of the two halves of a rename as one, which git apply
// takes.
func Rename(from, to vpath.Path, do func(Line)) {
	do(Line{Header, "diff --git " + quoteSide("a", from) + " " + quoteSide("b", to)})
	do(Line{Header, "similarity index 100%"})
	do(Line{Header, "rename from " + quote(from)})
	do(Line{Header, "rename to " + quote(to)})
}

// isPatchable reports whether git has a form for the side.
func isPatchable(s *review.Side) bool {
	return s == nil || s.Mode&record.TypeBits == unix.S_IFREG || s.Mode&record.TypeBits == unix.S_IFLNK
}

func header(f *review.FileDiff, do func(Line)) {
	do(Line{Header, "diff --git " + quoteSide("a", f.Path) + " " + quoteSide("b", f.Path)})
	switch {
	case f.Old == nil:
		do(Line{Header, "new file mode " + gitMode(f.New)})
	case f.New == nil:
		do(Line{Header, "deleted file mode " + gitMode(f.Old)})
	case f.Old.Mode != f.New.Mode:
		do(Line{Header, "old mode " + gitMode(f.Old)})
		do(Line{Header, "new mode " + gitMode(f.New)})
	}
}

func content(f *review.FileDiff, c *review.Content, escape bool, do func(Line)) {
	oldName, newName := quoteSide("a", f.Path), quoteSide("b", f.Path)
	if f.Old == nil {
		oldName = "/dev/null"
	}
	if f.New == nil {
		newName = "/dev/null"
	}
	switch {
	case !c.IsShown():
		do(Line{Context, fmt.Sprintf("Binary files %s and %s differ", oldName, newName)})
		do(Line{Warning, "# " + whyNotShown(f, c)})
	case len(c.Hunks) > 0:
		// git ends a name that holds a space with a tab, for GNU patch.
		do(Line{Header, "--- " + endName(oldName)})
		do(Line{Header, "+++ " + endName(newName)})
		Hunks(c.Hunks, escape, do)
	}
}

// whyNotShown says why a content is not shown.
func whyNotShown(f *review.FileDiff, c *review.Content) string {
	sizes := fmt.Sprintf("%d to %d bytes", f.Old.Size(), f.New.Size())
	if c.SHA256 != "" {
		sizes += ", now with SHA-256 " + c.SHA256
	}
	switch {
	case c.Binary:
		return "binary, " + sizes
	case c.TooLarge:
		return fmt.Sprintf("larger than %d bytes, not shown: %s", textdiff.SizeLimit, sizes)
	}
	return "what the sandbox saw was not kept: " + sizes
}

// Hunks calls do with each line of hunks, as Lines does.
func Hunks(list []textdiff.Hunk, escape bool, do func(Line)) {
	if escape {
		shown, escaped := textdiff.EscapeHunks(list)
		if escaped {
			do(Line{Warning, notAPatch})
		}
		list = shown
	}
	kinds := map[textdiff.Op]Kind{textdiff.Delete: Old, textdiff.Insert: New}
	for _, h := range list {
		do(Line{Hunk, h.Header()})
		for _, l := range h.Lines {
			text, whole := strings.CutSuffix(l.Text, "\n")
			do(Line{kinds[l.Op], string(rune(l.Op)) + text})
			if !whole {
				do(Line{Context, `\ No newline at end of file`})
			}
		}
	}
}

// Describe says in words what became of a path.
func Describe(f *review.FileDiff) string {
	switch {
	case f.Old == nil:
		return fmt.Sprintf("new %s, mode %04o", record.TypeName(f.New.Mode), f.New.Mode&record.StickyBits)
	case f.New == nil:
		return "deleted " + record.TypeName(f.Old.Mode)
	}
	return fmt.Sprintf("%s, mode %04o became %04o", record.TypeName(f.Old.Mode), f.Old.Mode&record.StickyBits, f.New.Mode&record.StickyBits)
}

// gitMode returns the mode as git writes it, with all permission bits: git
// itself knows only 644 and 755.
func gitMode(s *review.Side) string {
	if s.Mode&record.TypeBits == unix.S_IFLNK {
		return "120000"
	}
	return fmt.Sprintf("%06o", s.Mode&(record.TypeBits|record.PermBits))
}

// quote returns the path as git writes it in a patch.
func quote(p vpath.Path) string { return textdiff.QuoteName(p.Rel()) }

func quoteSide(side string, p vpath.Path) string { return textdiff.QuoteName(side + string(p)) }

func endName(name string) string {
	if strings.Contains(name, " ") && !strings.HasPrefix(name, `"`) {
		return name + "\t"
	}
	return name
}
