package client

import (
	"context"
	"io/fs"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// FileDiff is one path that a sandbox changed. A rename is a deletion and an
// addition; RenamedFrom and RenamedTo join them.
type FileDiff struct {
	Path   string
	Status ChangeStatus
	// Risk is not RiskNone for what could act on the host once applied;
	// RiskReason says how.
	Risk          Risk
	RiskReason    string
	SourceChanged bool       // since the sandbox first changed it: a conflict
	Old, New      *FileState // nil where nothing was, or is
	Inserted      int64      // lines
	Deleted       int64
	Patch         []byte // unified, as git has it; empty where there is no text, or none is asked for
	Binary        bool
	// TooLarge says that the contents are too large to be compared, PatchOmitted
	// that the patch is too large to be sent, OldContentUnknown that what was is
	// not known any more.
	TooLarge, PatchOmitted, OldContentUnknown bool
	// Group is the Name of the ChangeGroup that the change is in, "" for none.
	Group string
	// RenamedFrom is, of an added file, the deleted path that held the same content;
	// RenamedTo is the reverse. "" if none is known.
	RenamedFrom, RenamedTo string
	// Own says that it was made where the policy hides what the source has. It is never
	// applied, and has no patch. LeftOut says why no apply takes a change, "" if one may.
	Own     bool
	LeftOut string
}

// ChangeGroup is several changes that a review may show as one: what a tool
// installed, what git ignores, or git's own record of commits. A change of a file
// that git tracks is in no group.
type ChangeGroup struct {
	Name  string   // its directory
	Lines []string // what it holds, for people; escaped for a terminal
	Count int64    // of its changes
}

// FileState is what a path is, or was.
type FileState struct {
	Mode          fs.FileMode
	SizeBytes     int64
	SymlinkTarget string // of a symbolic link
	SHA256        string // of a regular file's new content, in hex; "" in a list of names
}

func stateFrom(f *sandboxv1.FileState) *FileState {
	if f == nil {
		return nil
	}
	return &FileState{stream.FileMode(f.Mode), f.Size, vpath.DecodeText(f.SymlinkTarget), f.Sha256}
}

func changeFrom(f *sandboxv1.FileDiff) FileDiff {
	patch := f.PatchBytes
	if len(patch) == 0 {
		patch = []byte(f.Patch)
	}
	return FileDiff{
		Path: vpath.DecodeText(f.Path), Status: ChangeStatus(word("CHANGE_STATUS_", f.Status)),
		Risk: Risk(word("RISK_", f.Risk)), RiskReason: f.RiskReason, SourceChanged: f.SourceChanged,
		Old: stateFrom(f.Old), New: stateFrom(f.New), Inserted: f.Inserted, Deleted: f.Deleted, Patch: patch, Binary: f.Binary,
		TooLarge: f.TooLarge, PatchOmitted: f.PatchOmitted, OldContentUnknown: f.OldContentUnknown,
		Group: f.Group, RenamedFrom: vpath.DecodeText(f.RenamedFrom), RenamedTo: vpath.DecodeText(f.RenamedTo),
		Own: f.Own, LeftOut: f.LeftOut,
	}
}

// selection are paths as the API has them, "/workspace" as "/". An empty one
// stays empty, and is refused.
func selection(paths []string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		if out[i] = inside(p); out[i] == "" && p != "" {
			out[i] = "/"
		}
	}
	return out
}

// Diff is what the sandbox changed, in paths and below them; no paths: all. What
// could act on the host comes first.
// Errors: ErrInvalid for an empty path; ErrNotFound for one at which nothing
// changed.
func (s *Sandbox) Diff(ctx context.Context, paths ...string) ([]FileDiff, error) {
	review, err := s.Review(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return review.Files, nil
}

// Review is what the sandbox changed, as it was shown.
type Review struct {
	Files  []FileDiff // as Diff returns them
	Groups []ChangeGroup
	Digest string // names paths, types, modes, link targets and contents
}

// Review is Diff with the digest that names what it shows, for ApplyReviewed.
// Errors: as Diff.
func (s *Sandbox) Review(ctx context.Context, paths ...string) (*Review, error) {
	return s.diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// DiffNames is Diff without patches and lines.
func (s *Sandbox) DiffNames(ctx context.Context, paths ...string) ([]FileDiff, error) {
	review, err := s.diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: selection(paths), NamesOnly: true})
	if err != nil {
		return nil, err
	}
	return review.Files, nil
}

func (s *Sandbox) diff(ctx context.Context, r *sandboxv1.DiffRequest) (*Review, error) {
	review := &Review{}
	var sent []*sandboxv1.FileDiff
	for change, err := range pages(func(token string) ([]*sandboxv1.FileDiff, string, error) {
		r.PageToken = token
		page, err := s.c.sandboxes.Diff(ctx, r)
		review.Digest = page.GetDigest()
		for _, g := range page.GetGroups() {
			review.Groups = append(review.Groups, ChangeGroup{g.Name, g.Lines, g.Count})
		}
		sent = append(sent, page.GetFiles()...)
		return page.GetFiles(), page.GetNextPageToken(), s.c.fail(ctx, "diff", err)
	}, changeFrom) {
		if err != nil {
			return nil, err
		}
		review.Files = append(review.Files, change)
	}
	if r.NamesOnly {
		return review, nil
	}
	return review, s.noteShown(review.Digest, sent)
}

// PathOutcome is what became of one path.
type PathOutcome struct {
	Path    string
	Status  ChangeStatus
	Outcome Outcome
	Reason  string // unless applied
}

// ApplyResult is what Apply did, or would do.
type ApplyResult struct {
	Results      []PathOutcome // those that were not applied first; as many as there was room for
	ResultCount  int64         // of all outcomes
	AppliedCount int64         // how many paths were applied
	// WrittenAgain are paths that the sandbox wrote again meanwhile: the later
	// version is still a change.
	WrittenAgain []string
}

// Apply carries changes over to the source, those in paths and below them. It does all of
// it or nothing. The source is the linked directory, or the one that FromLocal uploaded
// from this host and, where that still holds what was uploaded, is changed like a linked
// one, and with it the server's copy; else it is the codebase. Without paths it is everything:
// check that a list of your own (Apply(ctx, list...)) is not empty. Errors: ErrConflict for what
// conflicts with what is there, ErrDenied for what the policy does not let the sandbox write, and
// without the scope apply: ApplyDryRun tells what; ErrInvalid for an empty path; ErrNotFound for
// one at which nothing changed.
func (s *Sandbox) Apply(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// ApplyReviewed is Apply of what a Review with this digest has shown. What is not
// as it was shown is left out, with OutcomeChangedSinceReview, and stays in the
// sandbox. Apply takes what is there now.
// Errors: as Apply; ErrInvalid for what is no digest; ErrNotFound for one that the
// server keeps no longer; of a directory that was uploaded ErrInternal if the server sends
// what the last Review of s, with this digest, did not show.
func (s *Sandbox) ApplyReviewed(ctx context.Context, digest string, paths ...string) (*ApplyResult, error) {
	if digest == "" {
		return nil, failure("apply", "no digest: a list of names is no review", ErrInvalid)
	}
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), ReviewedDigest: digest})
}

// ApplyDryRun says what Apply would do, and does nothing.
func (s *Sandbox) ApplyDryRun(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), DryRun: true})
}

func (s *Sandbox) apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	if s.unnoted != nil {
		return nil, failure("apply", "the changes cannot come back into the directory: "+s.unnoted.Error(), ErrPrecondition, s.unnoted)
	}
	if result, err := s.bringBack(ctx, r); result != nil || err != nil {
		return result, err
	}
	got, err := s.c.sandboxes.Apply(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, "apply", err)
	}
	result := &ApplyResult{ResultCount: got.ResultCount, AppliedCount: got.AppliedCount, WrittenAgain: decoded(got.WrittenAgain)}
	for _, p := range got.Results {
		result.Results = append(result.Results, PathOutcome{
			vpath.DecodeText(p.Path), ChangeStatus(word("CHANGE_STATUS_", p.Status)), Outcome(word("OUTCOME_", p.Outcome)), p.Reason,
		})
	}
	return result, nil
}

// DiscardResult is what Discard did, or would do.
type DiscardResult struct {
	Paths        []string // as many as there was room for
	PathCount    int64    // of all paths
	WrittenAgain []string // by the sandbox meanwhile: they are still changes
}

// Discard forgets changes, those in paths and below them. Without paths it is
// everything: check that a list of your own (Discard(ctx, list...)) is not empty.
// Errors: ErrInvalid for an empty path; ErrNotFound for one at which nothing
// changed.
func (s *Sandbox) Discard(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return s.discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// DiscardDryRun says what Discard would do, and does nothing.
func (s *Sandbox) DiscardDryRun(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return s.discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: selection(paths), DryRun: true})
}

func (s *Sandbox) discard(ctx context.Context, r *sandboxv1.DiscardRequest) (*DiscardResult, error) {
	got, err := s.c.sandboxes.Discard(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, "discard", err)
	}
	return &DiscardResult{Paths: decoded(got.Paths), PathCount: got.PathCount, WrittenAgain: decoded(got.WrittenAgain)}, nil
}
