package wireconv

import (
	"fmt"
	"maps"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
)

const layersOfTheHost = "of the server's store of layers"

func init() {
	maps.Copy(messagePairs, map[string]messagePair{
		"ListSnapshotsResponse": {round: through(&sandboxv1.ListSnapshotsResponse{}, func(m *sandboxv1.ListSnapshotsResponse) {
			for i, s := range m.Snapshots {
				s.Name, s.Parent = fmt.Sprintf("s%d", i+7), fmt.Sprintf("s%d", i+6)
			}
			m.Present, m.ForkOf.Snapshot = "s7", "s3"
		}, func(m *sandboxv1.ListSnapshotsResponse) (*sandboxv1.ListSnapshotsResponse, error) {
			t, err := DecodeSnapshots(m)
			return EncodeSnapshots(&t), err
		})},
		"RestoreSnapshotResponse": {
			round: through(&sandboxv1.RestoreSnapshotResponse{}, func(m *sandboxv1.RestoreSnapshotResponse) {
				m.Snapshot.Name, m.Kept.Name = "s7", "s8"
			}, func(m *sandboxv1.RestoreSnapshotResponse) (*sandboxv1.RestoreSnapshotResponse, error) {
				r, err := DecodeRestored(m)
				return EncodeRestored(&r), err
			}),
			lost: map[string]string{"Snapshot.parent": "only ListSnapshots has it"},
		},
		"MergeSandboxResponse": {
			round: through(&sandboxv1.MergeSandboxResponse{}, func(m *sandboxv1.MergeSandboxResponse) {
				m.Kept.Name = "s7"
				m.Paths[0].Resolved, m.Paths[1].Resolved = sandboxv1.ConflictKind_CONFLICT_KIND_LINK, sandboxv1.ConflictKind_CONFLICT_KIND_UNSPECIFIED
				m.Conflicts[0].Kind, m.Conflicts[1].Kind = sandboxv1.ConflictKind_CONFLICT_KIND_REFUSED, sandboxv1.ConflictKind_CONFLICT_KIND_TEXT
				m.LeftOut[0].Path, m.LeftOut[1].Mount = "", "" // a mount as a whole, or a path of the workspace
			}, func(m *sandboxv1.MergeSandboxResponse) (*sandboxv1.MergeSandboxResponse, error) {
				r, err := DecodeMerged(m)
				return EncodeMerged(&r), err
			}),
			lost: map[string]string{
				"MergeSandboxResponse.path_count": "the reader counts the paths that it got", "MergeSandboxResponse.changed_count": "as path_count",
				"MergeSandboxResponse.conflict_count": "as path_count", "MergeSandboxResponse.left_out_count": "as path_count",
				"Snapshot.parent": "only ListSnapshots has it",
			},
		},
	})
	maps.Copy(domainPairs, map[string]domainPair{
		"merge.Result": {
			round: sentAs(func(r *merge.Result) {
				r.Kept.Reason = snapshot.BeforeMerge
				r.Left[0].Path, r.Left[1].Mount = "", ""
			}, func(r merge.Result) (merge.Result, error) { return DecodeMerged(EncodeMerged(&r)) }),
			lost: map[string]string{"Snapshot.Parts": layersOfTheHost, "Snapshot.SyncHeld": "the server looks at it"},
		},
		"snapshot.Tree": {
			round: sentAs(func(t *snapshot.Tree) {
				for i := range t.Nodes {
					t.Nodes[i].Reason = snapshot.BeforeCommand
				}
				t.Origin.ID = record.ID(meaningful["sandbox_id"])
			}, func(t snapshot.Tree) (snapshot.Tree, error) { return DecodeSnapshots(EncodeSnapshots(&t)) }),
			lost: map[string]string{
				"Node.Depth": "the parents say it", "Origin.Layer": layersOfTheHost, "Snapshot.Parts": layersOfTheHost, "Snapshot.SyncHeld": "the server looks at it",
			},
		},
		"snapshot.Restored": {
			round: sentAs(func(r *snapshot.Restored) { r.To.Reason, r.Kept.Reason = "", snapshot.BeforeRestore },
				func(r snapshot.Restored) (snapshot.Restored, error) { return DecodeRestored(EncodeRestored(&r)) }),
			lost: map[string]string{"Snapshot.Parts": layersOfTheHost, "Snapshot.SyncHeld": "the server looks at it"},
		},
	})
}
