package present

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// Version is the version of the JSON form of a review, and of what was
// applied and discarded. Its paths are relative to the workspace, as git writes
// them; those of version 1 began with a slash.
const Version = 2

// jsonHead is the beginning of the JSON form of a review; its "files" follow.
// Paths and link targets are escaped by vpath.Escape, modes are octal.
type jsonHead struct {
	SchemaVersion int       `json:"schema_version"`
	Sandbox       string    `json:"sandbox"`
	Mount         string    `json:"mount,omitempty"` // in which the changes are
	ID            record.ID `json:"id"`
}

type jsonFile struct {
	Mount  string         `json:"mount,omitempty"`
	Path   string         `json:"path"`
	Status changes.Status `json:"status"`
	ID     string         `json:"id,omitempty"` // of all of the change, for apply --hunk
	*review.RiskFlag
	Own         bool       `json:"own,omitempty"`
	LeftOut     string     `json:"left_out,omitempty"` // why no apply takes it
	NotPlaced   string     `json:"cannot_apply,omitempty"`
	Keep        *jsonKeep  `json:"keep,omitempty"`
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
	ModeID      string     `json:"mode_id,omitempty"` // of the change of the mode, beside hunks
}

// jsonKeep says that a rule with apply: keep matches.
type jsonKeep struct {
	Waits string   `json:"waits,omitempty"` // why it is not applied all the same
	Keys  []string `json:"keys,omitempty"`  // all that is applied of the file
}

// JSONGroup is the JSON form of a Group.
type JSONGroup struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Lines []string `json:"lines"`
}

// JSONGroups are the JSON forms of groups.
func JSONGroups(groups []review.Group) []JSONGroup {
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
	ID string `json:"id,omitempty"` // if it can be applied by itself
	jsonRange
	Lines []jsonLine `json:"lines"`
	// Pieces are the parts that can be applied by themselves, if there are several.
	Pieces []jsonPiece `json:"pieces,omitempty"`
}

// jsonPiece is a part of a hunk. Its lines are in the hunk.
type jsonPiece struct {
	ID string `json:"id"`
	jsonRange
}

type jsonRange struct {
	OldStart int `json:"old_start"`
	OldLines int `json:"old_lines"`
	NewStart int `json:"new_start"`
	NewLines int `json:"new_lines"`
}

func jsonRangeOf(h *textdiff.Hunk) jsonRange {
	return jsonRange{h.OldStart, h.OldLines, h.NewStart, h.NewLines}
}

// jsonLine has the line as text, or as base64 where it is not UTF-8.
type jsonLine struct {
	Op     string `json:"op"` // " ", "-" or "+"
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
}

// JSON writes the changes with their hunks as one JSON document, a file
// at a time, because all of them may be more than memory holds. Their digest,
// which it has from remember, is the last field, and returned.
func JSON(w io.Writer, r *review.Review, remember func() (string, error)) (digest string, err error) {
	head, err := json.Marshal(jsonHead{SchemaVersion: Version, Sandbox: r.Name(), Mount: r.Mount(), ID: r.ID()})
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "diff: %w", err)
	}
	b := bufio.NewWriter(w)
	files := r.Files()
	b.Write(head[:len(head)-1])
	b.WriteString(`,"files":[`)
	for i := range files {
		f := &files[i]
		c, err := r.Content(f)
		if err != nil {
			return "", err
		}
		j := jsonOf(f, &c)
		j.Mount = r.Mount()
		text, err := json.Marshal(j)
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
	groups, err := json.Marshal(JSONGroups(r.Groups()))
	if err != nil {
		return "", errdefs.New(errdefs.Internal, "diff: %w", err)
	}
	fmt.Fprintf(b, "],\"groups\":%s,\"digest\":%q}\n", vpath.EscapeJSON(groups), digest)
	return digest, b.Flush()
}

// Written is the path of a change as text and JSON have it: relative to the
// workspace, escaped.
func Written(p vpath.Path) string { return vpath.Escape(p.Rel()) }

// WrittenIn is the path of a change as text has it: as Written in the workspace, and with the
// name before it in a mount.
func WrittenIn(mount string, p vpath.Path) string {
	if mount == "" {
		return Written(p)
	}
	return InMount(mount, p.String())
}

// quotedIn is WrittenIn in a patch, where git reads names in its own way.
func quotedIn(mount string, p vpath.Path) string {
	if mount == "" {
		return textdiff.QuoteName(p.Rel())
	}
	return textdiff.QuoteName(InMount(mount, string(p)))
}

func jsonOf(f *review.FileDiff, c *review.Content) jsonFile {
	j := jsonFile{
		Path: Written(f.Path), Status: f.Status, RiskFlag: f.Mark, Own: f.Own, LeftOut: f.LeftOut, NotPlaced: f.NotPlaced, Group: f.Group, Stale: f.Stale,
		Old: jsonSideOf(f.Old), New: jsonSideOf(f.New),
		Binary: c.Binary, TooLarge: c.TooLarge, Unknown: c.Unknown, Inserted: c.Inserted, Deleted: c.Deleted,
	}
	if f.Keeping.Rule {
		j.Keep = &jsonKeep{f.Keeping.Waits, f.Keeping.Keys}
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
	j.setHunks(c.Hunks, hunk.Of(f, c))
	return j
}

func (j *jsonFile) setHunks(hunks []textdiff.Hunk, ids hunk.Set) {
	j.ID, j.ModeID = ids.Whole, ids.Mode
	for i, h := range hunks {
		out := jsonHunk{jsonRange: jsonRangeOf(&h)}
		for _, l := range h.Lines {
			out.Lines = append(out.Lines, jsonLineOf(l))
		}
		if ids.HasParts() {
			out.ID = ids.Text[i].ID
			for _, p := range ids.Text[i].Pieces {
				out.Pieces = append(out.Pieces, jsonPiece{p.ID, jsonRangeOf(&p.Hunk)})
			}
		}
		j.Hunks = append(j.Hunks, out)
	}
}

func jsonLineOf(l textdiff.Line) jsonLine {
	if utf8.ValidString(l.Text) {
		return jsonLine{Op: string(rune(l.Op)), Text: l.Text}
	}
	return jsonLine{Op: string(rune(l.Op)), Base64: base64.StdEncoding.EncodeToString([]byte(l.Text))}
}

func jsonSideOf(s *review.Side) *jsonSide {
	if s == nil {
		return nil
	}
	return &jsonSide{Mode: fmt.Sprintf("%06o", s.Mode), SizeBytes: s.SizeBytes, Target: record.HostPath(s.Target).String()}
}
