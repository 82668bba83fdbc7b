package client

import (
	"context"
	"io/fs"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Change is one path that a sandbox changed. A rename is a deletion and an
// addition.
type Change struct {
	Path   string
	Status string // "added", "modified", "deleted" or "retyped"
	// Risk is not "" for what could act on the host once applied: "trusted
	// later" or "runs on host"; RiskReason says how.
	Risk, RiskReason string
	SourceChanged    bool       // since the sandbox first changed it: a conflict
	Old, New         *FileState // nil where nothing was, or is
	Inserted         int64      // lines
	Deleted          int64
	Patch            []byte // unified, as git has it; empty where there is no text, or none is asked for
	Binary           bool
	// TooLarge says that the contents are too large to be compared, PatchOmitted
	// that the patch is too large to be sent, OldContentUnknown that what was is
	// not known any more.
	TooLarge, PatchOmitted, OldContentUnknown bool
}

// FileState is what a path is, or was.
type FileState struct {
	Mode      fs.FileMode
	SizeBytes int64
	Target    string // of a symbolic link
}

func stateFrom(f *sandboxv1.FileState) *FileState {
	if f == nil {
		return nil
	}
	return &FileState{modeOf(f.Mode), f.Size, vpath.DecodeText(f.SymlinkTarget)}
}

func changeFrom(f *sandboxv1.FileDiff) Change {
	patch := f.PatchBytes
	if len(patch) == 0 {
		patch = []byte(f.Patch)
	}
	return Change{
		Path: vpath.DecodeText(f.Path), Status: words("CHANGE_STATUS_", f.Status.String()),
		Risk: words("RISK_", f.Risk.String()), RiskReason: f.RiskReason, SourceChanged: f.SourceChanged,
		Old: stateFrom(f.Old), New: stateFrom(f.New), Inserted: f.Inserted, Deleted: f.Deleted, Patch: patch, Binary: f.Binary,
		TooLarge: f.TooLarge, PatchOmitted: f.PatchOmitted, OldContentUnknown: f.OldContentUnknown,
	}
}

// words is an enum's value as its word: "CHANGE_STATUS_ADDED" is "added".
func words(prefix, value string) string {
	word := strings.ToLower(strings.TrimPrefix(value, prefix))
	if word == "unspecified" {
		return ""
	}
	return strings.ReplaceAll(word, "_", " ")
}

// encoded are paths as the API has them.
func encoded(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		out[i] = inside(p)
	}
	return out
}

// Diff is what the sandbox changed, in paths and below them; none: all. What
// could act on the host comes first.
func (s *Sandbox) Diff(ctx context.Context, paths ...string) ([]Change, error) {
	return s.diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: encoded(paths)})
}

// DiffNames is Diff without patches and lines.
func (s *Sandbox) DiffNames(ctx context.Context, paths ...string) ([]Change, error) {
	return s.diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: encoded(paths), NamesOnly: true})
}

func (s *Sandbox) diff(ctx context.Context, r *sandboxv1.DiffRequest) ([]Change, error) {
	var changes []Change
	for {
		page, err := s.c.sandboxes.Diff(ctx, r)
		if err != nil {
			return nil, s.c.fail(ctx, "diff", err)
		}
		for _, f := range page.Files {
			changes = append(changes, changeFrom(f))
		}
		if r.PageToken = page.NextPageToken; r.PageToken == "" {
			return changes, nil
		}
	}
}

// PathOutcome is what became of one path.
type PathOutcome struct {
	Path    string
	Status  string // as in Change
	Outcome string // "applied", "present", "kept", "conflict", "refused", "failed" or "skipped"
	Reason  string // unless applied
}

// ApplyResult is what Apply did, or would do.
type ApplyResult struct {
	Outcomes []PathOutcome // those that were not applied first; as many as there was room for
	Count    int64         // of all outcomes
	Applied  int64         // how many paths were applied
	// WrittenAgain are paths that the sandbox wrote again meanwhile: the later
	// version is still a change.
	WrittenAgain []string
}

// Apply carries changes over to the codebase; no paths: all changes. It does all
// of it or nothing.
// Errors: ErrPrecondition for what conflicts with what is there, or may not be
// written: ApplyDryRun tells what; ErrNotFound for a path at which nothing
// changed; ErrDenied without the scope apply.
func (s *Sandbox) Apply(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: encoded(paths)})
}

// ApplyDryRun says what Apply would do, and does nothing.
func (s *Sandbox) ApplyDryRun(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: encoded(paths), DryRun: true})
}

func (s *Sandbox) apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	got, err := s.c.sandboxes.Apply(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, "apply", err)
	}
	result := &ApplyResult{Count: got.ResultCount, Applied: got.AppliedCount, WrittenAgain: decoded(got.WrittenAgain)}
	for _, p := range got.Results {
		result.Outcomes = append(result.Outcomes, PathOutcome{
			vpath.DecodeText(p.Path), words("CHANGE_STATUS_", p.Status.String()), words("OUTCOME_", p.Outcome.String()), p.Reason,
		})
	}
	return result, nil
}

// DiscardResult is what Discard did, or would do.
type DiscardResult struct {
	Paths        []string // as many as there was room for
	Count        int64    // of all paths
	WrittenAgain []string // by the sandbox meanwhile: they are still changes
}

// Discard forgets changes; no paths: all.
// Errors: ErrNotFound for a path at which nothing changed.
func (s *Sandbox) Discard(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return s.discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: encoded(paths)})
}

// DiscardDryRun says what Discard would do, and does nothing.
func (s *Sandbox) DiscardDryRun(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return s.discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: encoded(paths), DryRun: true})
}

func (s *Sandbox) discard(ctx context.Context, r *sandboxv1.DiscardRequest) (*DiscardResult, error) {
	got, err := s.c.sandboxes.Discard(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, "discard", err)
	}
	return &DiscardResult{Paths: decoded(got.Paths), Count: got.PathCount, WrittenAgain: decoded(got.WrittenAgain)}, nil
}
