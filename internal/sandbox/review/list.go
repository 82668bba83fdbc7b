package review

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// WriteNameStatus writes a line for each changed path: git's letter, a tab
// and the name as git quotes it. A rename is one line, with both names.
func (r *Review) WriteNameStatus(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, f := range r.files {
		switch {
		case f.RenamedTo != "":
		case f.RenamedFrom != "":
			fmt.Fprintf(b, "R100\t%s\t%s\n", changes.Quote(f.RenamedFrom), changes.Quote(f.Path))
		default:
			fmt.Fprintf(b, "%s\t%s\n", f.Status, changes.Quote(f.Path))
		}
	}
	return b.Flush()
}

// statWidth is the most columns that the bar of a file takes.
const statWidth = 40

// WriteStat writes a line for each changed path with how much of it changed,
// and a last one with the sums, as git diff --stat does. With verbose it does so
// for the changes in groups, too; else a group is one line.
func (r *Review) WriteStat(w io.Writer, verbose bool) error {
	var rows []statRow
	inserted, deleted := 0, 0
	for i := range r.files {
		f := &r.files[i]
		if f.RenamedTo != "" || f.Group != "" && !verbose {
			continue
		}
		row, err := r.statRow(f)
		if err != nil {
			return err
		}
		rows = append(rows, row)
		inserted, deleted = inserted+row.inserted, deleted+row.deleted
	}
	if !verbose {
		for i := range r.groups {
			rows = append(rows, groupRows(&r.groups[i])...)
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
	sum := fmt.Sprintf(" %s changed, %d inserted, %d deleted", Count(len(r.files), "file"), inserted, deleted)
	if n := r.grouped(); n > 0 && !verbose {
		sum += fmt.Sprintf(" (lines of %s in groups not counted)", Count(n, "file"))
	}
	fmt.Fprintln(b, sum)
	return b.Flush()
}

// grouped is how many of the changes are in groups.
func (r *Review) grouped() int {
	n := 0
	for _, g := range r.groups {
		n += g.Count
	}
	return n
}

type statRow struct {
	name, text        string
	inserted, deleted int
}

func (r *Review) statRow(f *FileDiff) (statRow, error) {
	row := statRow{name: changes.Quote(f.Path)}
	var err error
	if f.RenamedFrom != "" {
		row.name, row.text = changes.Quote(f.RenamedFrom)+" => "+row.name, "renamed"
	} else if row.text, row.inserted, row.deleted, err = r.statOf(f); err != nil {
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
func groupRows(g *Group) []statRow {
	rows := []statRow{{name: g.Name, text: Count(g.Count, "file")}}
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
func (r *Review) statOf(f *FileDiff) (text string, inserted, deleted int, err error) {
	shown := true
	for _, part := range f.parts() {
		c, err := r.Content(&part)
		if err != nil {
			return "", 0, 0, err
		}
		shown = shown && c.isShown()
		inserted, deleted = inserted+c.Inserted, deleted+c.Deleted
	}
	switch {
	case !shown:
		text = fmt.Sprintf("Bin %d -> %d bytes", sizeOf(f.Old), sizeOf(f.New))
	case inserted+deleted == 0:
		text = f.describeChange()
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

// Count writes a number with its unit: "1 file", "3 files".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ReviewVersion is the version of the JSON form of a Review, and of what was
// applied and discarded. Its paths are relative to the workspace, as git writes
// them; those of version 1 began with a slash.
const ReviewVersion = 2

// jsonHead is the beginning of the JSON form of a Review; its "files" follow.
// Paths and link targets are escaped by vpath.Escape, modes are octal.
type jsonHead struct {
	SchemaVersion int       `json:"schema_version"`
	Sandbox       string    `json:"sandbox"`
	ID            record.ID `json:"id"`
}

type jsonFile struct {
	Path   string         `json:"path"`
	Status changes.Status `json:"status"`
	*RiskFlag
	Own         bool       `json:"own,omitempty"`
	LeftOut     string     `json:"left_out,omitempty"` // why no apply takes it
	NotPlaced   string     `json:"cannot_apply,omitempty"`
	Group       string     `json:"group,omitempty"`
	RenamedFrom string     `json:"renamed_from,omitempty"`
	RenamedTo   string     `json:"renamed_to,omitempty"`
	Stale       bool       `json:"source_changed,omitempty"`
	Old         *jsonSide  `json:"old,omitempty"`
	New         *jsonSide  `json:"new,omitempty"`
	Binary      bool       `json:"binary,omitempty"`
	TooLarge    bool       `json:"too_large,omitempty"`
	Unknown     bool       `json:"old_content_unknown,omitempty"`
	Inserted    int        `json:"inserted"`
	Deleted     int        `json:"deleted"`
	Hunks       []jsonHunk `json:"hunks,omitempty"`
}

// JSONGroup is the JSON form of a Group.
type JSONGroup struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Lines []string `json:"lines"`
}

// JSONGroups are the JSON forms of groups.
func JSONGroups(groups []Group) []JSONGroup {
	out := make([]JSONGroup, len(groups))
	for i, g := range groups {
		out[i] = JSONGroup{g.Name, g.Count, g.Lines}
	}
	return out
}

type jsonSide struct {
	Mode      string `json:"mode"`
	SizeBytes int64  `json:"size_bytes"`
	Target    string `json:"symlink_target,omitempty"`
	SHA256    string `json:"sha256,omitempty"`
}

type jsonHunk struct {
	OldStart int        `json:"old_start"`
	OldLines int        `json:"old_lines"`
	NewStart int        `json:"new_start"`
	NewLines int        `json:"new_lines"`
	Lines    []jsonLine `json:"lines"`
}

// jsonLine has the line as text, or as base64 where it is not UTF-8.
type jsonLine struct {
	Op     string `json:"op"` // " ", "-" or "+"
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
}

// WriteJSON writes the changes with their hunks as one JSON document, a file
// at a time, because all of them may be more than memory holds. Their digest,
// which it has from remember, is the last field, and returned.
func (r *Review) WriteJSON(w io.Writer, remember func() (string, error)) (digest string, err error) {
	head, err := json.Marshal(jsonHead{SchemaVersion: ReviewVersion, Sandbox: r.name, ID: r.id})
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "diff: %w", err)
	}
	b := bufio.NewWriter(w)
	b.Write(head[:len(head)-1])
	b.WriteString(`,"files":[`)
	for i := range r.files {
		f := &r.files[i]
		c, err := r.Content(f)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(jsonOf(f, &c))
		if err != nil {
			return "", errdefs.New(errdefs.Internal, "diff: %w", err)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(vpath.EscapeJSON(text))
	}
	if digest, err = remember(); err != nil {
		return "", err
	}
	groups, err := json.Marshal(JSONGroups(r.groups))
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "diff: %w", err)
	}
	fmt.Fprintf(b, "],\"groups\":%s,\"digest\":%q}\n", vpath.EscapeJSON(groups), digest)
	return digest, b.Flush()
}

// Written is the path of a change as text and JSON have it: relative to the
// workspace, escaped.
func Written(p vpath.Path) string { return vpath.Escape(p.Rel()) }

func jsonOf(f *FileDiff, c *Content) jsonFile {
	j := jsonFile{
		Path: Written(f.Path), Status: f.Status, RiskFlag: f.Mark, Own: f.Own, LeftOut: f.LeftOut, NotPlaced: f.NotPlaced, Group: f.Group, Stale: f.Stale,
		Old: jsonSideOf(f.Old), New: jsonSideOf(f.New),
		Binary: c.Binary, TooLarge: c.TooLarge, Unknown: c.Unknown, Inserted: c.Inserted, Deleted: c.Deleted,
	}
	if j.New != nil {
		j.New.SHA256 = c.SHA256
	}
	if f.RenamedFrom != "" {
		j.RenamedFrom = Written(f.RenamedFrom)
	}
	if f.RenamedTo != "" {
		j.RenamedTo = Written(f.RenamedTo)
	}
	for _, h := range c.Hunks {
		out := jsonHunk{OldStart: h.OldStart, OldLines: h.OldLines, NewStart: h.NewStart, NewLines: h.NewLines}
		for _, l := range h.Lines {
			out.Lines = append(out.Lines, jsonLineOf(l))
		}
		j.Hunks = append(j.Hunks, out)
	}
	return j
}

func jsonLineOf(l textdiff.Line) jsonLine {
	if utf8.ValidString(l.Text) {
		return jsonLine{Op: string(rune(l.Op)), Text: l.Text}
	}
	return jsonLine{Op: string(rune(l.Op)), Base64: base64.StdEncoding.EncodeToString([]byte(l.Text))}
}

func jsonSideOf(s *Side) *jsonSide {
	if s == nil {
		return nil
	}
	return &jsonSide{Mode: fmt.Sprintf("%06o", s.Mode), SizeBytes: s.SizeBytes, Target: record.HostPath(s.Target).String()}
}
