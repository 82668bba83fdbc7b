package present

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/parallel"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/gitpatch"
)

// NameStatus writes a line for each changed path: git's letter, a tab
// and the name as git quotes it. A rename is one line, with both names.
func NameStatus(w io.Writer, r *review.Review) error {
	b := bufio.NewWriter(w)
	for _, f := range r.Files() {
		switch {
		case f.RenamedTo != "":
		case f.RenamedFrom != "":
			fmt.Fprintf(b, "R100\t%s\t%s\n", WrittenIn(r.Mount(), f.RenamedFrom), WrittenIn(r.Mount(), f.Path))
		default:
			fmt.Fprintf(b, "%s\t%s\n", f.Status, WrittenIn(r.Mount(), f.Path))
		}
	}
	return b.Flush()
}

// statWidth is the most columns that the bar of a file takes.
const statWidth = 40

// Stat writes a line for each changed path with how much of it changed,
// and a last one with the sums, as git diff --stat does. With verbose it does so
// for the changes in groups, too; else a group is one line.
func Stat(w io.Writer, r *review.Review, verbose bool) error {
	files, groups := r.Files(), r.Groups()
	rows, err := statRows(r, verbose)
	if err != nil {
		return err
	}
	inserted, deleted := 0, 0
	for i := range rows {
		inserted, deleted = inserted+rows[i].inserted, deleted+rows[i].deleted
	}
	if !verbose {
		for i := range groups {
			rows = append(rows, groupRows(&groups[i])...)
		}
	}
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.name))
	}
	b := bufio.NewWriter(w)
	for _, row := range rows {
		pad := width - utf8.RuneCountInString(row.name)
		fmt.Fprintf(b, " %s%s | %s\n", row.name, strings.Repeat(" ", pad), row.text)
	}
	sum := fmt.Sprintf(" %s changed, %d inserted, %d deleted", review.Count(len(files), "file"), inserted, deleted)
	if n := grouped(r); n > 0 && !verbose {
		sum += fmt.Sprintf(" (lines of %s in groups not counted)", review.Count(n, "file"))
	}
	fmt.Fprintln(b, sum)
	return b.Flush()
}

// statRows are the rows of the files, in their order. The contents are compared concurrently.
func statRows(r *review.Review, verbose bool) ([]statRow, error) {
	files := r.Files()
	var shown []*review.FileDiff
	for i := range files {
		if f := &files[i]; f.RenamedTo == "" && (f.Group == "" || verbose) {
			shown = append(shown, f)
		}
	}
	rows := make([]statRow, len(shown))
	err := parallel.Each(len(shown), func(i int) (err error) {
		rows[i], err = statRowOf(r, shown[i])
		return err
	})
	return rows, err
}

// grouped is how many of the changes are in groups.
func grouped(r *review.Review) int {
	n := 0
	for _, g := range r.Groups() {
		n += g.Count
	}
	return n
}

type statRow struct {
	name, text        string
	inserted, deleted int
}

func statRowOf(r *review.Review, f *review.FileDiff) (statRow, error) {
	row := statRow{name: WrittenIn(r.Mount(), f.Path)}
	var err error
	if f.RenamedFrom != "" {
		row.name, row.text = WrittenIn(r.Mount(), f.RenamedFrom)+" => "+row.name, "renamed"
	} else if row.text, row.inserted, row.deleted, err = statOf(r, f); err != nil {
		return row, err
	}
	if f.LeftOut != "" {
		row.text += fmt.Sprintf("  [%s]", f.LeftOut)
	}
	if f.NotPlaced != "" {
		row.text += "  [cannot be applied: " + f.NotPlaced + "]"
	}
	if f.Mark != nil {
		row.text += fmt.Sprintf("  [%s: %s]", f.Mark.Risk, f.Mark.Reason)
	}
	return row, nil
}

// groupRows are a group's lines, of which the first has its marks.
func groupRows(g *review.Group) []statRow {
	rows := []statRow{{name: g.Name, text: review.Count(g.Count, "file")}}
	for i, line := range g.Lines {
		if i == 0 {
			rows[0].text += ", " + line
			continue
		}
		rows = append(rows, statRow{name: g.Name, text: line})
	}
	for _, m := range g.Marks {
		if m.IsUsual() {
			continue
		}
		rows[0].text += fmt.Sprintf("  [%s: %d %s]", m.Risk, len(m.Paths), m.Reason)
	}
	return rows
}

// statOf sums the parts of f.
func statOf(r *review.Review, f *review.FileDiff) (text string, inserted, deleted int, err error) {
	shown := true
	for _, part := range f.Parts() {
		c, err := r.Content(&part)
		if err != nil {
			return "", 0, 0, err
		}
		shown = shown && c.IsShown()
		inserted, deleted = inserted+c.Inserted, deleted+c.Deleted
	}
	switch {
	case !shown:
		text = fmt.Sprintf("Bin %d -> %d bytes", f.Old.Size(), f.New.Size())
	case inserted+deleted == 0:
		text = gitpatch.Describe(f)
	default:
		plus, minus := scale(inserted, deleted)
		text = fmt.Sprintf("%d %s%s", inserted+deleted, strings.Repeat("+", plus), strings.Repeat("-", minus))
	}
	return text, inserted, deleted, nil
}

// scale fits a bar into statWidth; what is there shows at least once.
func scale(inserted, deleted int) (plus, minus int) {
	total := inserted + deleted
	if total <= statWidth {
		return inserted, deleted
	}
	plus, minus = inserted*statWidth/total, deleted*statWidth/total
	return max(plus, min(inserted, 1)), max(minus, min(deleted, 1))
}
