package wireconv

import (
	"cmp"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// maxPaths limits the paths of one answer, which also has their number.
const maxPaths = 10_000

// EncodeSelection encodes paths that select changes. The root is "/", because a server refuses an
// empty path.
func EncodeSelection(paths []vpath.Path) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = cmp.Or(p.Text(), string(vpath.Root))
	}
	return out
}

// Applied is what an apply did.
type Applied struct {
	apply.Result
	Commit    string // of Apply.Branch
	Statement []byte // of Apply.Attest
}

// EncodeApplied returns the result of an apply; paths that were applied come last.
func EncodeApplied(result Applied) *sandboxv1.ApplyResponse {
	listed := result.AppliedLast()
	answer := &sandboxv1.ApplyResponse{
		ResultCount: int64(len(listed)), AppliedCount: int64(result.Count(apply.Applied)),
		WrittenAgain:  encodePaths(result.Changed[:min(len(result.Changed), maxPaths)]),
		TransactionId: result.Transaction, Commit: result.Commit, Statement: result.Statement,
	}
	for _, p := range listed[:min(len(listed), maxPaths)] {
		answer.Results = append(answer.Results, &sandboxv1.PathOutcome{
			Path: p.Path.Text(), Outcome: Outcome.Encode(p.Outcome), Reason: p.Reason, Status: ChangeStatus.Encode(p.Status),
			Hunks: int64(p.Hunks), OfHunks: int64(p.OfHunks),
			Merged: p.Merged, Conflicts: int64(p.Conflicts), ConflictKind: ConflictKind.Encode(p.Kind),
		})
	}
	return answer
}

// DecodeApplied returns the result of an apply, by path. Errors: Internal for an invalid path.
func DecodeApplied(answer *sandboxv1.ApplyResponse) (result Applied, err error) {
	result.Transaction, result.Commit, result.Statement = answer.TransactionId, answer.Commit, answer.Statement
	for _, p := range answer.Results {
		path, err := decodePath(p.Path)
		if err != nil {
			return result, err
		}
		result.Paths = append(result.Paths, apply.PathResult{
			Path: path, Status: ChangeStatus.Decode(p.Status), Outcome: Outcome.Decode(p.Outcome), Reason: vpath.EscapeMessage(p.Reason),
			Hunks: int(p.Hunks), OfHunks: int(p.OfHunks),
			Merged: p.Merged, Conflicts: int(p.Conflicts), Kind: ConflictKind.Decode(p.ConflictKind),
		})
	}
	slices.SortFunc(result.Paths, func(a, b apply.PathResult) int { return cmp.Compare(a.Path, b.Path) })
	result.Changed, err = decodePaths(answer.WrittenAgain)
	return result, err
}

// EncodeDiscarded returns the result of a discard.
func EncodeDiscarded(result apply.DiscardResult) *sandboxv1.DiscardResponse {
	return &sandboxv1.DiscardResponse{
		Paths: encodePaths(result.Paths[:min(len(result.Paths), maxPaths)]), PathCount: int64(len(result.Paths)),
		WrittenAgain: encodePaths(result.Changed[:min(len(result.Changed), maxPaths)]),
	}
}

// DecodeDiscarded is the reverse of EncodeDiscarded. Errors: Internal for an invalid path.
func DecodeDiscarded(answer *sandboxv1.DiscardResponse) (result apply.DiscardResult, err error) {
	if result.Paths, err = decodePaths(answer.Paths); err != nil {
		return result, err
	}
	result.Changed, err = decodePaths(answer.WrittenAgain)
	return result, err
}

// EncodeChange returns the header of a change whose content follows.
func EncodeChange(c apply.CarriedChange) *sandboxv1.ReadChangesResponse_Change {
	m := &sandboxv1.ReadChangesResponse_Change{
		Path: c.Path.Text(), Status: ChangeStatus.Encode(c.Status), Outcome: Outcome.Encode(c.Outcome), Reason: c.Reason,
	}
	if c.Mode != 0 {
		m.State = &sandboxv1.FileState{Mode: c.Mode, Size: c.SizeBytes, SymlinkTarget: vpath.EncodeText(c.Target), Sha256: c.SHA256}
	}
	return m
}

// DecodeChange is the reverse of EncodeChange. Errors: Internal for an invalid path, and for an
// unknown status or outcome, whose effect on a file of this host is unknown.
func DecodeChange(m *sandboxv1.ReadChangesResponse_Change) (apply.CarriedChange, error) {
	path, err := decodePath(m.Path)
	if err != nil {
		return apply.CarriedChange{}, err
	}
	c := apply.CarriedChange{
		Path: path, Status: ChangeStatus.Decode(m.Status), Outcome: Outcome.Decode(m.Outcome), Reason: vpath.EscapeMessage(m.Reason),
	}
	if c.Status == 0 || c.Outcome == "" {
		return c, errdefs.New(errdefs.Internal, "server sent an unknown change of %s", path)
	}
	if s := m.State; s != nil {
		c.Mode, c.SizeBytes, c.Target, c.SHA256 = s.Mode, s.Size, vpath.DecodeText(s.SymlinkTarget), s.Sha256
	}
	return c, nil
}
