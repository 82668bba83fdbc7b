package wireconv

import (
	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// Merge asks for the changes of a sandbox to be brought into another one.
type Merge struct {
	Into, From id.Sandbox
	Snapshot   string       // "": the present state
	Paths      []vpath.Path // none: all
	Resolve    conflict.Resolution
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
			Path: p.Path.Text(), Status: ChangeStatus.Encode(p.Status), Merged: p.Merged, Resolved: ConflictKind.Encode(p.Resolved),
		})
	}
	for _, c := range r.Conflicts[:min(len(r.Conflicts), maxPaths)] {
		m.Conflicts = append(m.Conflicts, &sandboxv1.MergeConflict{Path: c.Path.Text(), Kind: ConflictKind.Encode(c.Kind), Reason: c.Reason})
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
			Path: path, Status: ChangeStatus.Decode(p.GetStatus()), Merged: p.GetMerged(), Resolved: ConflictKind.Decode(p.GetResolved()),
		})
	}
	for _, c := range m.GetConflicts() {
		path, err := decodePath(c.GetPath())
		if err != nil {
			return r, err
		}
		r.Conflicts = append(r.Conflicts, merge.Conflict{Path: path, Kind: ConflictKind.Decode(c.GetKind()), Reason: vpath.EscapeMessage(c.GetReason())})
	}
	for _, l := range m.GetLeftOut() {
		left := merge.LeftOut{Mount: vpath.Escape(l.GetMount()), Reason: vpath.EscapeMessage(l.GetReason())}
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
