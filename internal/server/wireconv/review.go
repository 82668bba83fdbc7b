package wireconv

import (
	"crypto/sha256"
	"encoding/hex"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// EncodeFileDiff returns a changed file without its content.
func EncodeFileDiff(f *review.FileDiff) *sandboxv1.FileDiff {
	m := &sandboxv1.FileDiff{
		Path: f.Path.Text(), Status: ChangeStatus.Encode(f.Status), SourceChanged: f.Stale, Old: encodeSide(f.Old), New: encodeSide(f.New),
		Group: f.Group, Own: f.Own, LeftOut: f.LeftOut,
	}
	if f.RenamedFrom != "" {
		m.RenamedFrom = f.RenamedFrom.Text()
	}
	if f.RenamedTo != "" {
		m.RenamedTo = f.RenamedTo.Text()
	}
	if f.Mark != nil {
		m.Risk, m.RiskReason = Risk.Encode(f.Mark.Risk), f.Mark.Reason
	}
	return m
}

// DecodeFileDiff returns a changed file without its content. Errors: Internal for an
// invalid path.
func DecodeFileDiff(m *sandboxv1.FileDiff) (review.FileDiff, error) {
	path, err := decodePath(m.Path)
	if err != nil {
		return review.FileDiff{}, err
	}
	f := review.FileDiff{
		Path: path, Status: ChangeStatus.Decode(m.Status), Old: decodeSide(m.Old), New: decodeSide(m.New), Stale: m.SourceChanged,
		Own: m.Own, LeftOut: vpath.EscapeMessage(m.LeftOut), Group: vpath.EscapeMessage(m.Group),
	}
	if m.Risk != sandboxv1.Risk_RISK_UNSPECIFIED {
		f.Mark = &review.RiskFlag{Risk: Risk.Decode(m.Risk), Reason: vpath.EscapeMessage(m.RiskReason)}
	}
	if m.RenamedFrom != "" {
		f.RenamedFrom, err = decodePath(m.RenamedFrom)
	}
	if m.RenamedTo != "" && err == nil {
		f.RenamedTo, err = decodePath(m.RenamedTo)
	}
	return f, err
}

func encodeSide(s *review.Side) *sandboxv1.FileState {
	if s == nil {
		return nil
	}
	return &sandboxv1.FileState{Mode: s.Mode, Size: s.SizeBytes, SymlinkTarget: vpath.EncodeText(s.Target), LinkCount: s.Links}
}

func decodeSide(m *sandboxv1.FileState) *review.Side {
	if m == nil {
		return nil
	}
	return &review.Side{Mode: m.Mode, SizeBytes: m.Size, Target: vpath.DecodeText(m.SymlinkTarget), Links: m.LinkCount}
}

// EncodeGroups returns the groups of a review.
func EncodeGroups(groups []review.Group) []*sandboxv1.ChangeGroup {
	var out []*sandboxv1.ChangeGroup
	for _, g := range groups {
		out = append(out, &sandboxv1.ChangeGroup{Name: g.Name, Lines: g.Lines, Count: int64(g.Count)})
	}
	return out
}

// DecodeGroups returns the groups of files: descriptions from the messages, changes from files.
func DecodeGroups(sent []*sandboxv1.ChangeGroup, files []review.FileDiff) []review.Group {
	lines := map[string][]string{}
	for _, g := range sent {
		name := vpath.EscapeMessage(g.Name)
		for _, line := range g.Lines {
			lines[name] = append(lines[name], vpath.EscapeMessage(line))
		}
	}
	return review.GroupsOf(files, func(name string) []string { return lines[name] })
}

// EncodeContent adds to the message of a file what gitpatch.Write returned of it, and, where all of
// the content is shown, the patch that it wrote.
func EncodeContent(m *sandboxv1.FileDiff, f *review.FileDiff, c review.Content, patch []byte) {
	ids := hunk.Of(f, &c)
	m.Id, m.ModeId, m.Hunks = ids.Whole, ids.Mode, encodeHunks(ids.Text)
	if m.New != nil {
		m.New.Sha256 = c.SHA256
	}
	m.Binary, m.TooLarge, m.OldContentUnknown = c.Binary, c.TooLarge, c.Unknown
	m.Inserted, m.Deleted = int64(c.Inserted), int64(c.Deleted)
	if m.LeftOut == "" && !c.Binary && !c.TooLarge && !c.Unknown {
		m.Patch, m.PatchBytes = EncodeOutput(patch)
	}
}

func encodeHunks(hunks []hunk.Hunk) []*sandboxv1.Hunk {
	var out []*sandboxv1.Hunk
	for _, h := range hunks {
		m := &sandboxv1.Hunk{Id: h.ID, OldStart: int64(h.OldStart), OldLines: int64(h.OldLines), NewStart: int64(h.NewStart), NewLines: int64(h.NewLines)}
		for _, p := range h.Pieces {
			m.Pieces = append(m.Pieces, &sandboxv1.HunkPiece{
				Id: p.ID, OldStart: int64(p.OldStart), OldLines: int64(p.OldLines), NewStart: int64(p.NewStart), NewLines: int64(p.NewLines),
			})
		}
		out = append(out, m)
	}
	return out
}

// DecodeContent reads the content of f, or of the part of it that is a deletion or an addition,
// from a server's patch. Errors: Internal for a malformed patch, and for one that does not match
// the server's checksum.
func DecodeContent(m *sandboxv1.FileDiff, f *review.FileDiff) (review.Content, error) {
	if link := onlyLink(f); link != nil { // its content is its target, which is always sent
		return contentOfLink(f, link.Target), nil
	}
	c := review.Content{Binary: m.Binary, TooLarge: m.TooLarge || m.PatchOmitted, Unknown: m.OldContentUnknown}
	if f.New != nil {
		c.SHA256 = vpath.Escape(m.New.GetSha256())
	}
	patches, err := textdiff.ParsePatch(string(decodeOutput(m.Patch, m.PatchBytes)))
	if err != nil {
		return c, errdefs.New(errdefs.Internal, "diff %s: the server's patch: %w", f.Path, err)
	}
	for _, p := range patches {
		otherPart := f.Old == nil && p.Deleted || f.New == nil && p.Added
		if !otherPart {
			c.Hunks = append(c.Hunks, p.Hunks...)
		}
	}
	if len(patches) > 1 && f.Old != nil && f.New != nil { // its type changed
		c.Hunks = textdiff.Hunks(sideText(c.Hunks, textdiff.Insert), sideText(c.Hunks, textdiff.Delete))
	}
	c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	return c, checkNew(&c, f)
}

// checkNew refuses the text of a new file that does not match the server's checksum.
func checkNew(c *review.Content, f *review.FileDiff) error {
	if f.Old != nil || f.New == nil || f.New.Mode&unix.S_IFMT != unix.S_IFREG || f.LeftOut != "" || c.Binary || c.TooLarge || c.Unknown || c.SHA256 == "" {
		return nil
	}
	if sum := sha256.Sum256(sideText(c.Hunks, textdiff.Delete)); hex.EncodeToString(sum[:]) != c.SHA256 {
		return errdefs.New(errdefs.Internal, "diff %s: the server's patch does not match its SHA-256", f.Path)
	}
	return nil
}

// sideText returns one side of hunks that contain the whole file.
func sideText(hunks []textdiff.Hunk, without textdiff.Op) []byte {
	var text []byte
	for _, h := range hunks {
		for _, l := range h.Lines {
			if l.Op != without {
				text = append(text, l.Text...)
			}
		}
	}
	return text
}

// onlyLink returns the one side of f if that is a symbolic link.
func onlyLink(f *review.FileDiff) *review.Side {
	side := f.New
	if side == nil {
		side = f.Old
	}
	if side == nil || f.Old != nil && f.New != nil || side.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil
	}
	return side
}

func contentOfLink(f *review.FileDiff, target string) review.Content {
	var before, after []byte
	if f.Old != nil {
		before = []byte(target)
	} else {
		after = []byte(target)
	}
	c := review.Content{Hunks: textdiff.Hunks(before, after)}
	c.Inserted, c.Deleted = textdiff.Count(c.Hunks)
	return c
}

// EncodeViewEntry returns a file or directory of a sandbox's view.
func EncodeViewEntry(e readview.Entry) *sandboxv1.ViewEntry {
	return &sandboxv1.ViewEntry{
		Path: e.Path.Text(), Permission: Permission.Encode(e.Permission), Mode: e.Mode, Size: e.SizeBytes,
		ModifiedAt: timestamppb.New(e.ModifiedAt), Origin: ViewOrigin.Encode(e.Origin), SymlinkTarget: vpath.EncodeText(e.Target),
	}
}

// DecodeViewEntry is the reverse of EncodeViewEntry. Errors: Internal for an invalid path.
func DecodeViewEntry(m *sandboxv1.ViewEntry) (readview.Entry, error) {
	path, err := decodePath(m.Path)
	return readview.Entry{
		Path: path, Permission: Permission.Decode(m.Permission), Mode: m.Mode, SizeBytes: m.Size,
		ModifiedAt: decodeTime(m.ModifiedAt), Origin: ViewOrigin.Decode(m.Origin), Target: vpath.DecodeText(m.SymlinkTarget),
	}, err
}
