package wireconv

import (
	"strconv"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

// SnapshotReason is the reason of a snapshot.
var SnapshotReason = enum(map[snapshot.Reason]sandboxv1.SnapshotReason{
	"":                     sandboxv1.SnapshotReason_SNAPSHOT_REASON_UNSPECIFIED,
	snapshot.BeforeCommand: sandboxv1.SnapshotReason_SNAPSHOT_REASON_CHECKPOINT,
	snapshot.BeforeRestore: sandboxv1.SnapshotReason_SNAPSHOT_REASON_RESTORE,
	snapshot.BeforeMerge:   sandboxv1.SnapshotReason_SNAPSHOT_REASON_MERGE,
})

// EncodeSnapshot returns a snapshot as the API shows it, without its place in the tree.
func EncodeSnapshot(s *snapshot.Snapshot) *sandboxv1.Snapshot {
	return &sandboxv1.Snapshot{
		Name: s.Ref(), Label: s.Label, CreatedAt: encodeTime(s.CreatedAt),
		Reason: SnapshotReason.Encode(s.Reason), Command: validText(s.Command),
	}
}

// DecodeSnapshot is the reverse of EncodeSnapshot. Errors: Internal for an invalid name.
func DecodeSnapshot(m *sandboxv1.Snapshot) (s snapshot.Snapshot, err error) {
	s = snapshot.Snapshot{
		Label: vpath.Escape(m.GetLabel()), CreatedAt: decodeTime(m.GetCreatedAt()),
		Reason: SnapshotReason.Decode(m.GetReason()), Command: m.GetCommand(),
	}
	s.Number, err = decodeSnapshotName(m.GetName())
	return s, err
}

// encodeSnapshotName returns the name of the snapshot with a number; "" for 0.
func encodeSnapshotName(number int) string {
	if number == 0 {
		return ""
	}
	return (&snapshot.Snapshot{Number: number}).Ref()
}

// decodeSnapshotName is the reverse of encodeSnapshotName.
func decodeSnapshotName(name string) (int, error) {
	if name == "" {
		return 0, nil
	}
	digits, ok := strings.CutPrefix(name, "s")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 {
		return 0, errdefs.New(errdefs.Internal, "server returned an invalid name of a snapshot")
	}
	return n, nil
}

// EncodeSnapshots returns the tree of a sandbox's snapshots.
func EncodeSnapshots(t *snapshot.Tree) *sandboxv1.ListSnapshotsResponse {
	m := &sandboxv1.ListSnapshotsResponse{Present: encodeSnapshotName(t.Present)}
	for i := range t.Nodes {
		s := EncodeSnapshot(&t.Nodes[i].Snapshot)
		s.Parent = encodeSnapshotName(t.Nodes[i].Parent)
		m.Snapshots = append(m.Snapshots, s)
	}
	if o := t.Origin; o != nil {
		m.ForkOf = &sandboxv1.ListSnapshotsResponse_Origin{SandboxId: string(o.ID), SandboxName: o.Name, Snapshot: encodeSnapshotName(o.Snapshot)}
	}
	return m
}

// DecodeSnapshots is the reverse of EncodeSnapshots. Errors: Internal for an invalid name.
func DecodeSnapshots(m *sandboxv1.ListSnapshotsResponse) (t snapshot.Tree, err error) {
	if t.Present, err = decodeSnapshotName(m.GetPresent()); err != nil {
		return t, err
	}
	depth := map[int]int{0: -1}
	for _, sent := range m.GetSnapshots() {
		n := snapshot.Node{}
		if n.Snapshot, err = DecodeSnapshot(sent); err != nil {
			return t, err
		}
		if n.Parent, err = decodeSnapshotName(sent.GetParent()); err != nil {
			return t, err
		}
		n.Depth = depth[n.Parent] + 1
		depth[n.Number] = n.Depth
		t.Nodes = append(t.Nodes, n)
	}
	if o := m.GetForkOf(); o != nil {
		t.Origin = &snapshot.Origin{ID: id.Sandbox(o.GetSandboxId()), Name: vpath.Escape(o.GetSandboxName())}
		t.Origin.Snapshot, err = decodeSnapshotName(o.GetSnapshot())
	}
	return t, err
}

// EncodeRestored returns what a restore did.
func EncodeRestored(r *snapshot.Restored) *sandboxv1.RestoreSnapshotResponse {
	m := &sandboxv1.RestoreSnapshotResponse{Snapshot: EncodeSnapshot(&r.To), LeftMounts: r.Left}
	if r.Kept.Number != 0 {
		m.Kept = EncodeSnapshot(&r.Kept)
	}
	return m
}

// DecodeRestored is the reverse of EncodeRestored. Errors: Internal for an invalid name.
func DecodeRestored(m *sandboxv1.RestoreSnapshotResponse) (r snapshot.Restored, err error) {
	for _, name := range m.GetLeftMounts() {
		r.Left = append(r.Left, vpath.Escape(name))
	}
	if r.To, err = DecodeSnapshot(m.GetSnapshot()); err == nil && m.GetKept() != nil {
		r.Kept, err = DecodeSnapshot(m.GetKept())
	}
	return r, err
}
