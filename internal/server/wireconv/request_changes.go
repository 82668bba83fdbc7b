package wireconv

import (
	"cmp"
	"strings"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Diff asks for a page of a sandbox's changes.
type Diff struct {
	Sandbox     id.Sandbox
	Mount       string       // "": the workspace
	Paths       []vpath.Path // none: all
	NamesOnly   bool
	ShownDigest string
	Page        PageAfter
	// PageDigest covers what the pages before showed; "" for a list of names.
	PageDigest string
}

// DecodeDiff reads a request.
func DecodeDiff(r *sandboxv1.DiffRequest) (d Diff, err error) {
	d = Diff{NamesOnly: r.GetNamesOnly(), ShownDigest: r.GetShownDigest()}
	if d.Sandbox, d.Mount, err = changesOf(r); err != nil {
		return d, err
	}
	if d.Paths, err = requestPaths(r.GetPaths()); err != nil {
		return d, err
	}
	digest, last := splitDiffToken(r.GetPageToken())
	d.PageDigest = digest
	d.Page, err = requestPageAfter(r.GetPageSize(), last)
	return d, err
}

const diffTokenMark = ":"

// EncodeDiffToken returns the token of the page after the one that ends with last. digest covers
// all that was shown, "" for a list of names.
func EncodeDiffToken(digest string, last vpath.Path) string {
	if digest == "" {
		return last.Text()
	}
	return digest + diffTokenMark + last.Text()
}

// splitDiffToken is the reverse of EncodeDiffToken.
func splitDiffToken(token string) (digest, path string) {
	digest, path, found := strings.Cut(token, diffTokenMark)
	if !found || !record.IsDigest(digest) {
		return "", token
	}
	return digest, path
}

// Apply asks for changes to be applied, or for their contents.
type Apply struct {
	Sandbox id.Sandbox
	Mount   string // "": the workspace
	Options apply.Options
	// Branch is a new branch that gets a commit of the changes by Git, in place of the source, with
	// the Message; or "".
	Branch, Message string
	Git             gitconfig.User
	Attest          bool
}

// maxCommitMessage is the maximum length of a commit's message, in bytes.
const maxCommitMessage = 64 << 10

// DecodeApply reads a request.
func DecodeApply(r *sandboxv1.ApplyRequest) (a Apply, err error) {
	paths, pathErr := requestPaths(r.GetPaths())
	a = Apply{Branch: r.GetToBranch(), Message: r.GetMessage(), Git: DecodeGit(r.GetGitUser()), Attest: r.GetAttest()}
	a.Options = apply.Options{Paths: paths, Hunks: r.GetHunks(), DryRun: r.GetDryRun(), Reviewed: r.GetReviewedDigest()}
	a.Sandbox, a.Mount, err = changesOf(r)
	how, howErr := Resolution.Parse("on_conflict", r.GetOnConflict())
	a.Options.OnConflict = how
	return a, cmp.Or(err, pathErr, howErr, a.checkBranch(), a.checkAttest())
}

// checkBranch checks what belongs to a branch. Errors: Invalid.
func (a *Apply) checkBranch() error {
	switch {
	case a.Branch == "" && a.Message != "":
		return errdefs.New(errdefs.Invalid, "message: it needs to_branch")
	case len(a.Message) > maxCommitMessage:
		return errdefs.New(errdefs.Invalid, "message: %d bytes are more than %d", len(a.Message), maxCommitMessage)
	case a.Branch != "" && a.Options.OnConflict != conflict.Merge:
		return errdefs.New(errdefs.Invalid, "on_conflict: not together with to_branch")
	case a.Branch != "" && (a.Git.Name == "" || a.Git.Email == ""):
		return errdefs.New(errdefs.Invalid, "git_user: a commit needs its name and its email")
	}
	return a.Git.Check()
}

// checkAttest refuses what no statement can be made of. Errors: Invalid.
func (a *Apply) checkAttest() error {
	if a.Attest && (a.Options.OnConflict != conflict.Merge || a.Options.DryRun || len(a.Options.Hunks) > 0) {
		return errdefs.New(errdefs.Invalid, "attest: not together with hunks, on_conflict or dry_run")
	}
	return nil
}

// DecodeReadChanges reads a request.
func DecodeReadChanges(r *sandboxv1.ReadChangesRequest) (a Apply, err error) {
	paths, pathErr := requestPaths(r.GetPaths())
	a.Options = apply.Options{Paths: paths, Reviewed: r.GetReviewedDigest()}
	a.Sandbox, a.Mount, err = changesOf(r)
	return a, cmp.Or(err, pathErr)
}

// Discard asks for changes to be deleted.
type Discard struct {
	Sandbox id.Sandbox
	Mount   string // "": the workspace
	Options apply.DiscardOptions
}

// DecodeDiscard reads a request.
func DecodeDiscard(r *sandboxv1.DiscardRequest) (d Discard, err error) {
	paths, pathErr := requestPaths(r.GetPaths())
	d.Options = apply.DiscardOptions{Paths: paths, DryRun: r.GetDryRun()}
	d.Sandbox, d.Mount, err = changesOf(r)
	return d, cmp.Or(err, pathErr)
}

// changesOf reads which changes a request is about.
func changesOf(r interface {
	GetSandboxId() string
	GetMount() string
},
) (sb id.Sandbox, mount string, err error) {
	sb, err = SandboxID(r)
	return sb, r.GetMount(), cmp.Or(err, checkMountName(r.GetMount()))
}
