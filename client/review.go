package client

import (
	"context"
	"io/fs"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// FileDiff is a path that a sandbox changed. A rename is a deletion and an addition, which
// RenamedFrom and RenamedTo connect.
type FileDiff struct {
	Path   string
	Status ChangeStatus
	// Risk is not RiskNone for a file that could act on the host after it is applied; RiskReason
	// says how.
	Risk          Risk
	RiskReason    string
	SourceChanged bool       // the source changed since the sandbox saw it: a conflict
	Old, New      *FileState // nil for an added, or a deleted path
	Inserted      int64      // lines
	Deleted       int64
	Patch         []byte // in git's format; empty if there is no text, and from DiffNames
	Binary        bool
	// TooLarge: the contents are too large to be compared. PatchOmitted: the patch is too large for
	// a message. OldContentUnknown: the old content is no longer known.
	TooLarge, PatchOmitted, OldContentUnknown bool
	// Group is the Name of the change's ChangeGroup, "" if it has none.
	Group string
	// RenamedFrom is, for an added file, the deleted path that had the same content; RenamedTo is
	// the reverse. "" if none is known.
	RenamedFrom, RenamedTo string
	// Own: an own entry, created where the policy hides the source's entries. It is never applied
	// and has no patch. LeftOut is why apply never takes the change, "" if it may.
	Own     bool
	LeftOut string
	// ID selects all of the change in ApplyHunks, and ModeID the change of the mode, if the file
	// has Hunks, too. Both are "" from DiffNames, and ID for what no apply takes.
	ID, ModeID string
	Hunks      []Hunk // of Patch, that can be applied by themselves
}

// Hunk is a run of changed lines of a text file, with the lines around it.
type Hunk struct {
	ID string // for ApplyHunks
	// OldStart and NewStart are the first lines in the old and the new file, from 1; of a side
	// without lines, the line before it.
	OldStart, OldLines int64
	NewStart, NewLines int64
	Pieces             []Hunk // that can be applied by themselves, if there are several
}

func hunksFrom(sent []*sandboxv1.Hunk) []Hunk {
	var hunks []Hunk
	for _, h := range sent {
		hunk := Hunk{h.Id, h.OldStart, h.OldLines, h.NewStart, h.NewLines, nil}
		for _, p := range h.Pieces {
			hunk.Pieces = append(hunk.Pieces, Hunk{p.Id, p.OldStart, p.OldLines, p.NewStart, p.NewLines, nil})
		}
		hunks = append(hunks, hunk)
	}
	return hunks
}

// ChangeGroup is a set of changes that a review may show as one: files that a tool installed, files
// that git ignores, or git's own record of commits. A change of a file that git tracks is in no
// group.
type ChangeGroup struct {
	Name  string   // its directory
	Lines []string // description for people; escaped for a terminal
	Count int64    // number of its changes
}

// FileState is the state of a path.
type FileState struct {
	Mode          fs.FileMode
	SizeBytes     int64
	SymlinkTarget string // of a symbolic link
	SHA256        string // of a regular file's new content, in hexadecimal; "" from DiffNames
	LinkCount     uint32 // number of names that the sandbox has for the file; 0: unknown
}

func stateFrom(f *sandboxv1.FileState) *FileState {
	if f == nil {
		return nil
	}
	return &FileState{stream.FileMode(f.Mode), f.Size, vpath.DecodeText(f.SymlinkTarget), f.Sha256, f.LinkCount}
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
		Own: f.Own, LeftOut: f.LeftOut, ID: f.Id, ModeID: f.ModeId, Hunks: hunksFrom(f.Hunks),
	}
}

// selection encodes paths for the API; "/workspace" is "/". An empty path stays empty, and the
// server refuses it.
func selection(paths []string) []string { return selectionOf(paths, inside) }

func selectionOf(paths []string, encode func(string) string) []string {
	out := make([]string, len(paths))
	for i, p := range paths {
		if out[i] = encode(p); out[i] == "" && p != "" {
			out[i] = "/"
		}
	}
	return out
}

// Diff returns the sandbox's changes at and below paths; without paths, all. Files that could act
// on the host come first. Errors: ErrInvalid for an empty path; ErrNotFound for a path without a
// change.
func (s *Sandbox) Diff(ctx context.Context, paths ...string) ([]FileDiff, error) {
	review, err := s.Review(ctx, paths...)
	if err != nil {
		return nil, err
	}
	return review.Files, nil
}

// Review is a list of changes, identified by a digest.
type Review struct {
	Files  []FileDiff // as Diff returns them
	Groups []ChangeGroup
	Digest string // covers paths, types, modes, link targets and contents
}

// Review is Diff with a digest of what it shows, for ApplyReviewed. Errors: those of Diff.
func (s *Sandbox) Review(ctx context.Context, paths ...string) (*Review, error) {
	return s.diff(ctx, &sandboxv1.DiffRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// DiffNames is Diff without patches and numbers of lines.
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
	if r.NamesOnly || r.Mount != "" {
		return review, nil
	}
	return review, s.noteShown(review.Digest, sent)
}

// PathOutcome is the outcome of one path.
type PathOutcome struct {
	Path    string
	Status  ChangeStatus
	Outcome Outcome
	Reason  string // unless it was applied
	// Hunks are how many parts of the file ApplyHunks selected, of OfHunks; 0 if it was all.
	Hunks, OfHunks int64
	// Merged says that the source had changed, too, and has the changes of both now. Conflicts are
	// the places at which these contradicted each other, which ApplyResolving resolved.
	Merged    bool
	Conflicts int64
	// Kind is what the conflict is about, with OutcomeConflict.
	Kind ConflictKind
}

// ApplyResult is what Apply did, or would do.
type ApplyResult struct {
	Results      []PathOutcome // those that were not applied first; the list may be cut
	ResultCount  int64         // number of all results
	AppliedCount int64         // number of applied paths
	// WrittenAgain are paths that the sandbox wrote again meanwhile. The later version is still a
	// change.
	WrittenAgain []string
	// TransactionID is what Client.Undo takes back; "" for an uploaded directory, and if nothing
	// was applied.
	TransactionID string
	Commit        string // of ApplyToBranch
	// Statement is what ApplyAttested and ApplyToBranchAttested return, an in-toto Statement in
	// JSON. Sign it with ssh-keygen -Y sign -n agentfense-attest; agentfense verify checks it.
	Statement []byte
}

// Apply applies the changes at and below paths to the source: all of them or none. Without paths it
// applies all changes: check that a list of your own (Apply(ctx, list...)) is not empty. A text
// that the source and the sandbox have changed at different lines is merged, but not in a directory
// or codebase that was uploaded.
//
// The source is the linked directory, or the codebase. If FromLocal uploaded a directory of this
// host, Apply changes that directory, if it still has the uploaded content, and the server's copy.
//
// Errors: ErrConflict if the source changed since the sandbox saw it; ErrDenied if the policy does
// not let the sandbox write a path, and without the scope apply (ApplyDryRun returns the paths);
// ErrInvalid for an empty path; ErrNotFound for a path without a change.
func (s *Sandbox) Apply(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// ApplyReviewed is Apply of the changes that a Review with this digest showed. A change that
// differs from what was shown is left out, with OutcomeChangedSinceReview, and stays in the
// sandbox; Apply would apply it. Errors: those of Apply; ErrInvalid for a malformed digest;
// ErrNotFound if the server no longer stores the state; for an uploaded directory ErrInternal if
// the server sends changes that the last Review of s, with this digest, did not show.
func (s *Sandbox) ApplyReviewed(ctx context.Context, digest string, paths ...string) (*ApplyResult, error) {
	if digest == "" {
		return nil, failure("apply", noDigest, ErrInvalid)
	}
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), ReviewedDigest: digest})
}

// ApplyHunks is ApplyReviewed of the changes and hunks with these ids. The rest of a file remains a
// change of the sandbox. A file without one of the ids that name its path is left out, with
// OutcomeChangedSinceReview. Without ids it applies nothing. Errors: those of ApplyReviewed;
// ErrInvalid for a malformed id; ErrNotFound for an id of no change; ErrPrecondition for a
// directory that FromLocal uploaded.
func (s *Sandbox) ApplyHunks(ctx context.Context, digest string, ids ...string) (*ApplyResult, error) {
	return s.applyHunks(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, ReviewedDigest: digest, Hunks: ids})
}

func (s *Sandbox) applyHunks(ctx context.Context, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	switch {
	case r.ReviewedDigest == "":
		return nil, failure("apply", noDigest, ErrInvalid)
	case len(r.Hunks) == 0: // the server would take this as a selection of everything
		return &ApplyResult{}, nil
	}
	return s.apply(ctx, r)
}

// ApplyResolving is Apply that resolves conflicts in texts, and says so in PathOutcome.Conflicts.
// With a digest, it is ApplyReviewed. Other conflicts, such as a deletion of a file that the source
// has changed, are those of Apply. Errors: those of ApplyReviewed; ErrInvalid for an unknown how;
// ErrPrecondition for a directory that FromLocal uploaded.
func (s *Sandbox) ApplyResolving(ctx context.Context, how ConflictResolution, digest string, paths ...string) (*ApplyResult, error) {
	return s.applyResolving(ctx, how, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), ReviewedDigest: digest})
}

func (s *Sandbox) applyResolving(ctx context.Context, how ConflictResolution, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	value, known := resolutions[how]
	if !known {
		return nil, failure("apply", "unknown resolution of conflicts: want ResolveOurs, ResolveTheirs or ResolveMarkers", ErrInvalid)
	}
	r.OnConflict = value
	return s.apply(ctx, r)
}

var resolutions = map[ConflictResolution]sandboxv1.ConflictResolution{
	ResolveOurs:    sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_OURS,
	ResolveTheirs:  sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_THEIRS,
	ResolveMarkers: sandboxv1.ConflictResolution_CONFLICT_RESOLUTION_MARKERS,
}

// ApplyToBranch is ApplyReviewed, but commits the changes to a new branch of the linked directory's
// git repository: its work tree stays as it is, and the changes stay in the sandbox. The commit is
// by this user, as git's configuration or WithGitUser says. With an empty message it names the
// sandbox. Errors: those of ApplyReviewed; ErrPrecondition without a repository, or for an uploaded
// directory; ErrExists for a branch that exists; ErrInvalid without a name and an email address.
func (s *Sandbox) ApplyToBranch(ctx context.Context, branch, message, digest string, paths ...string) (*ApplyResult, error) {
	return s.applyToBranch(ctx, branch, message, &sandboxv1.ApplyRequest{Paths: selection(paths), ReviewedDigest: digest})
}

// ApplyToBranchAttested is ApplyToBranch, and returns a statement about the commit, for this user
// to sign. Nothing is merged: a file whose version in the work tree is not committed is a conflict.
// Errors: those of ApplyToBranch; ErrDenied without the scope read.
func (s *Sandbox) ApplyToBranchAttested(ctx context.Context, branch, message, digest string, paths ...string) (*ApplyResult, error) {
	return s.applyToBranch(ctx, branch, message, &sandboxv1.ApplyRequest{Paths: selection(paths), ReviewedDigest: digest, Attest: true})
}

func (s *Sandbox) applyToBranch(ctx context.Context, branch, message string, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	switch {
	case r.ReviewedDigest == "":
		return nil, failure("apply", noDigest, ErrInvalid)
	case branch == "":
		return nil, failure("apply", "the name of the branch is empty", ErrInvalid)
	}
	r.SandboxId, r.ToBranch, r.Message, r.GitUser = s.ID, branch, message, s.c.settings.gitUser()
	return s.applyThere(ctx, r)
}

// ApplyAttested is ApplyReviewed, and returns a statement about what was applied, for this user to
// sign. Errors: those of ApplyReviewed; ErrDenied without the scope read.
func (s *Sandbox) ApplyAttested(ctx context.Context, digest string, paths ...string) (*ApplyResult, error) {
	if digest == "" {
		return nil, failure("apply", noDigest, ErrInvalid)
	}
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), ReviewedDigest: digest, Attest: true})
}

const noDigest = "no digest: use the digest of Review (DiffNames has none)"

// ApplyDryRun returns what Apply would do, and changes nothing.
func (s *Sandbox) ApplyDryRun(ctx context.Context, paths ...string) (*ApplyResult, error) {
	return s.apply(ctx, &sandboxv1.ApplyRequest{SandboxId: s.ID, Paths: selection(paths), DryRun: true})
}

func (s *Sandbox) apply(ctx context.Context, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	if r.Mount != "" { // its source is on the server's host
		return s.applyThere(ctx, r)
	}
	if s.unnoted != nil {
		return nil, failure("apply", "cannot apply changes to the directory: "+s.unnoted.Error(), ErrPrecondition, s.unnoted)
	}
	if result, err := s.bringBack(ctx, r); result != nil || err != nil {
		return result, err
	}
	return s.applyThere(ctx, r)
}

// applyThere is apply on the server.
func (s *Sandbox) applyThere(ctx context.Context, r *sandboxv1.ApplyRequest) (*ApplyResult, error) {
	got, err := s.c.sandboxes.Apply(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, "apply", err)
	}
	result := &ApplyResult{ResultCount: got.ResultCount, AppliedCount: got.AppliedCount, WrittenAgain: decoded(got.WrittenAgain), TransactionID: got.TransactionId, Commit: got.Commit, Statement: got.Statement}
	for _, p := range got.Results {
		result.Results = append(result.Results, PathOutcome{
			vpath.DecodeText(p.Path), ChangeStatus(word("CHANGE_STATUS_", p.Status)), Outcome(word("OUTCOME_", p.Outcome)), p.Reason, p.Hunks, p.OfHunks,
			p.Merged, p.Conflicts, ConflictKind(word("CONFLICT_KIND_", p.ConflictKind)),
		})
	}
	return result, nil
}

// DiscardResult is what Discard did, or would do.
type DiscardResult struct {
	Paths        []string // the list may be cut
	PathCount    int64    // number of all paths
	WrittenAgain []string // by the sandbox meanwhile: these are still changes
}

// Discard deletes the changes at and below paths. Without paths it deletes all changes: check that
// a list of your own (Discard(ctx, list...)) is not empty. Errors: ErrInvalid for an empty path;
// ErrNotFound for a path without a change.
func (s *Sandbox) Discard(ctx context.Context, paths ...string) (*DiscardResult, error) {
	return s.discard(ctx, &sandboxv1.DiscardRequest{SandboxId: s.ID, Paths: selection(paths)})
}

// DiscardDryRun returns what Discard would do, and changes nothing.
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
