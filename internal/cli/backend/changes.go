package backend

import (
	"cmp"
	"context"
	"io"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// Changes are what a sandbox changed. They are read anew by each method.
type Changes interface {
	// Sandbox is the sandbox, as the first of the other methods found it.
	Sandbox() Sandbox
	// Ref is how a command names the sandbox with these changes: "fix", or "fix --in data" for
	// those in a mount.
	Ref() string
	// Lost is why the changes cannot be compared with their source, nil if they can.
	// Then they are compared with what was recorded of it.
	Lost() error
	// Review shows what changed at and below the paths; without paths, all. Close it
	// after. Errors: NotFound if nothing changed at a path.
	Review(ctx context.Context, paths []vpath.Path, how Detail) (*Review, error)
	// Apply brings changes into the source, or into the directory that was uploaded. If
	// something stands in the way, the result tells what, beside the error. Errors:
	// Precondition; *ReplacedError.
	Apply(ctx context.Context, o ApplyOptions) (Applied, error)
	// Discard throws changes away.
	Discard(ctx context.Context, paths []vpath.Path, dryRun bool) (Discarded, error)
	// NoteAll notes that all there is was shown, unless something runs.
	NoteAll(ctx context.Context) error
	// Synced lists what a server brought into the codebase by itself. It is empty where
	// that does not happen.
	Synced(ctx context.Context) ([]vpath.Path, error)
}

// MountChanges are how many changes a mount has that were not applied.
type MountChanges struct {
	Mount string
	Files []review.FileDiff
}

// Detail is how much of a review is shown to a person.
type Detail int

// The details.
const (
	Names    Detail = iota // no contents
	Counts                 // the number of changed lines
	Contents               // all of it: an apply may take it
)

// Review is a review that may be shown.
type Review struct {
	*review.Review
	// Remember stores what the review shows and returns its digest.
	Remember func() (digest string, err error)
	// Note notes that this was shown last.
	Note func(digest string) error
}

// Take is what an apply takes.
type Take int

// What an apply takes. What changes afterwards is left out of TakeShown and TakeNow.
const (
	TakeShown  Take = iota // what was shown last, or if nothing was, TakeNow
	TakeNow                // what is there when it starts
	TakeLatest             // what is there when it is applied
)

// ApplyOptions say what to apply.
type ApplyOptions struct {
	Paths    []vpath.Path // and what lies below them; none: everything
	Hunks    []string     // ids of what is applied, in place of Paths
	DryRun   bool
	Take     Take
	Reviewed string // the digest of what was shown, in place of Take
	Rebase   bool   // take the directory that is in the place of the source now
	To       string // the directory of this host that takes the changes; "" for the source
	// Branch is a new branch of the source's git repository that gets a commit of the changes in
	// place of the source, with the message; "" for the source.
	Branch, Message string
	Progress        func(tried, total int)
	// OnConflict says what to do with lines that the source and the sandbox have changed; without
	// Unreviewed, one of Merge, Ours, Theirs and Markers.
	OnConflict conflict.Resolution
	// Waiting and Recovered are those of apply.Options.
	Waiting   func(holder string)
	Recovered func(history.Recovered)
	// Unreviewed applies changes that no person has reviewed: all but those that could act on the
	// host by themselves, and those that the source has changed, too. What is left out is in the
	// result. Only of this host.
	Unreviewed bool
	// Attest makes a statement about what was applied, as Applied.Statement. What is applied must
	// have been shown, or nothing may run.
	Attest bool
}

// Applied is what an apply did.
type Applied struct {
	apply.Result
	// To is the directory that has the changes now, "" for the source.
	To string
	// Commit is the id of the commit that has them, if a branch was asked for.
	Commit string
	// Codebase is what has them on a server, of which this host has no directory; else "".
	Codebase string
	// Statement is the text that ApplyOptions.Attest asked for; empty if nothing was applied.
	Statement []byte
}

// Discarded is what a discard threw away.
type Discarded struct {
	apply.DiscardResult
	// Files and Groups are what changed before, as a review lists it. They are empty if it
	// could not be shown: it can be thrown away all the same.
	Files  []review.FileDiff
	Groups []review.Group
}

// View is what a sandbox sees.
type View interface {
	Close()
	// Lost is as that of Changes: the view then has what the sandbox holds.
	Lost() error
	// Stat describes a path. Errors: NotFound.
	Stat(ctx context.Context, path vpath.Path) (readview.Entry, error)
	// List lists a directory, or describes a file. Errors: NotFound.
	List(ctx context.Context, dir vpath.Path) ([]readview.Entry, error)
	// Copy writes a file to w. Errors: NotFound, Denied, Invalid.
	Copy(ctx context.Context, w io.Writer, path vpath.Path) error
}

// ReplacedError says that another directory is in the place of a sandbox's source. With
// Rebase in the options it becomes the source.
type ReplacedError struct {
	Why  error
	Name string
	// Advice says what can be done without Rebase; "" is ElsewhereAdvice.
	Advice string
}

// Error says so, and what can be done.
func (e *ReplacedError) Error() string {
	return e.Why.Error() + "; --rebase takes it, " + cmp.Or(e.Advice, ElsewhereAdvice(e.Name))
}

// Unwrap is the error of the source.
func (e *ReplacedError) Unwrap() error { return e.Why }

// ElsewhereAdvice says what can be done with the changes of a sandbox without a source.
func ElsewhereAdvice(name string) string {
	return "agentfense diff " + name + " shows what the sandbox holds, agentfense apply " + name + " --to DIR brings it into another directory"
}
