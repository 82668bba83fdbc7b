package wireconv

import (
	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// The enums of a merge, which uses those of an apply.
var (
	MergeKind = enum(map[merge.Kind]sandboxv1.ConflictKind{
		"":                 sandboxv1.ConflictKind_CONFLICT_KIND_UNSPECIFIED,
		merge.Text:         sandboxv1.ConflictKind_CONFLICT_KIND_TEXT,
		merge.Binary:       sandboxv1.ConflictKind_CONFLICT_KIND_BINARY,
		merge.TooLarge:     sandboxv1.ConflictKind_CONFLICT_KIND_TOO_LARGE,
		merge.NoBase:       sandboxv1.ConflictKind_CONFLICT_KIND_NO_BASE,
		merge.Link:         sandboxv1.ConflictKind_CONFLICT_KIND_LINK,
		merge.Mode:         sandboxv1.ConflictKind_CONFLICT_KIND_MODE,
		merge.DeleteModify: sandboxv1.ConflictKind_CONFLICT_KIND_DELETE_MODIFY,
		merge.RenameEdit:   sandboxv1.ConflictKind_CONFLICT_KIND_RENAME_EDIT,
		merge.TypeChange:   sandboxv1.ConflictKind_CONFLICT_KIND_TYPE_CHANGE,
		merge.BothAdded:    sandboxv1.ConflictKind_CONFLICT_KIND_BOTH_ADDED,
		merge.Directory:    sandboxv1.ConflictKind_CONFLICT_KIND_DIRECTORY,
		merge.Hidden:       sandboxv1.ConflictKind_CONFLICT_KIND_HIDDEN,
		merge.HiddenBelow:  sandboxv1.ConflictKind_CONFLICT_KIND_HIDDEN_BELOW,
		merge.Refused:      sandboxv1.ConflictKind_CONFLICT_KIND_REFUSED,
	})
	Resolution = enum(map[merge.Resolution]sandboxv1.ConflictResolution{
		merge.Stop:    sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_UNSPECIFIED,
		merge.Ours:    sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS,
		merge.Theirs:  sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS,
		merge.Markers: sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_MARKERS,
	})
)

// Merge asks for the changes of a sandbox to be brought into another one.
type Merge struct {
	Into, From id.Sandbox
	Snapshot   string       // "": the present state
	Paths      []vpath.Path // none: all
	Resolve    merge.Resolution
	DryRun     bool
}

// DecodeMergeSandbox reads a request.
func DecodeMergeSandbox(r *sandboxv1.MergeSandboxRequest) (m Merge, err error) {
	m = Merge{Snapshot: r.GetSnapshot(), DryRun: r.GetDryRun()}
	if m.Snapshot == snapshot.Present {
		m.Snapshot = ""
	}
	if m.Into, err = SandboxID(r); err != nil {
		return m, err
	}
	if err := required("from_sandbox_id", r.GetFromSandboxId()); err != nil {
		return m, err
	}
	if m.From, err = id.ParseSandbox(r.GetFromSandboxId()); err != nil {
		return m, err
	}
	if m.Paths, err = requestPaths(r.GetPaths()); err != nil {
		return m, err
	}
	m.Resolve, err = Resolution.Parse("on_conflict", r.GetOnConflict())
	return m, err
}

// EncodeMerged returns what a merge did.
func EncodeMerged(r *merge.Result) *sandboxv1.MergeSandboxResponse {
	m := &sandboxv1.MergeSandboxResponse{
		PathCount: int64(len(r.Paths)), ChangedCount: int64(r.Changed()), ConflictCount: int64(len(r.Conflicts)), LeftOutCount: int64(len(r.Left)),
	}
	for _, p := range r.Paths[:min(len(r.Paths), maxPaths)] {
		m.Paths = append(m.Paths, &sandboxv1.MergedPath{
			Path: p.Path.Text(), Status: ChangeStatus.Encode(p.Status), Merged: p.Merged, Resolved: MergeKind.Encode(p.Resolved),
		})
	}
	for _, c := range r.Conflicts[:min(len(r.Conflicts), maxPaths)] {
		m.Conflicts = append(m.Conflicts, &sandboxv1.MergeConflict{Path: c.Path.Text(), Kind: MergeKind.Encode(c.Kind), Reason: c.Reason})
	}
	for _, l := range r.Left[:min(len(r.Left), maxPaths)] {
		left := &sandboxv1.MergeLeftOut{Mount: l.Mount, Reason: l.Reason}
		if l.Mount == "" {
			left.Path = l.Path.Text()
		}
		m.LeftOut = append(m.LeftOut, left)
	}
	if r.Kept.Number != 0 {
		m.Kept = EncodeSnapshot(&r.Kept)
	}
	return m
}

// DecodeMerged is the reverse of EncodeMerged. Errors: Internal for an invalid path or name.
func DecodeMerged(m *sandboxv1.MergeSandboxResponse) (r merge.Result, err error) {
	for _, p := range m.GetPaths() {
		path, err := decodePath(p.GetPath())
		if err != nil {
			return r, err
		}
		r.Paths = append(r.Paths, merge.Path{
			Path: path, Status: ChangeStatus.Decode(p.GetStatus()), Merged: p.GetMerged(), Resolved: MergeKind.Decode(p.GetResolved()),
		})
	}
	for _, c := range m.GetConflicts() {
		path, err := decodePath(c.GetPath())
		if err != nil {
			return r, err
		}
		r.Conflicts = append(r.Conflicts, merge.Conflict{Path: path, Kind: MergeKind.Decode(c.GetKind()), Reason: vpath.Escape(c.GetReason())})
	}
	for _, l := range m.GetLeftOut() {
		left := merge.LeftOut{Mount: vpath.Escape(l.GetMount()), Reason: vpath.Escape(l.GetReason())}
		if l.GetMount() == "" {
			if left.Path, err = decodePath(l.GetPath()); err != nil {
				return r, err
			}
		}
		r.Left = append(r.Left, left)
	}
	if m.GetKept() != nil {
		r.Kept, err = DecodeSnapshot(m.GetKept())
	}
	return r, err
}
