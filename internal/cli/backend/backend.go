package backend

import (
	"context"
	"io"
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/gitview"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// Backend is what the verbs ask of the sandboxes of this host (package local) or of a
// server (package remote). A server takes an id in place of a name.
//
// Errors of every method that takes a name: NotFound. What an implementation cannot do
// is a *LocalOnlyError.
type Backend interface {
	io.Closer
	Asks
	Board
	Commits
	History
	Snapshots

	// Sandboxes lists the sandboxes, with what each holds if usage is set. An error that
	// concerns some of them comes with a list of the others, which is not nil.
	Sandboxes(ctx context.Context, usage bool) ([]Sandbox, error)
	// Sandbox finds a sandbox.
	Sandbox(ctx context.Context, name string) (Sandbox, error)
	// Check refuses what no sandbox here can have, before anything is asked for.
	Check(n NewSandbox) error
	// Create makes a sandbox, and does not start it. Errors: Exists for a name that is
	// taken; Invalid; NotFound.
	Create(ctx context.Context, n NewSandbox) (Sandbox, error)
	// Reopen finds a sandbox and changes what the flags say. Errors: Precondition for what
	// cannot be changed; *ReplacedError.
	Reopen(ctx context.Context, name string, r Reopening) (Sandbox, error)
	// Enter starts a sandbox that does not run. Leave it after. Errors: Precondition;
	// *ReplacedError.
	Enter(ctx context.Context, sb Sandbox, o EnterOptions) (Live, error)
	// IsDirOf tells of a path of a codebase whether it is a directory. Of what cannot be
	// told it says false.
	IsDirOf(ctx context.Context, codebase string) func(path string) bool
	// Unshown lists the places of file systems that are mounted in the source, of which
	// nothing is shown inside.
	Unshown(ctx context.Context, sb Sandbox) ([]vpath.Path, error)
	// LookAtGit looks at what git keeps of hidden files. seen is to be called when that has
	// been told.
	LookAtGit(ctx context.Context, sb Sandbox) (found gitview.Tracked, seen func() error, err error)

	// Inspect tells what a sandbox is and what runs in it.
	Inspect(ctx context.Context, name string) (Inspection, error)
	// Stop ends everything that runs in a sandbox. One that does not run is no error.
	Stop(ctx context.Context, name string, o StopOptions) (Stopped, error)
	// Remove removes a sandbox. Its audit log stays. Errors: Precondition if it runs or
	// holds changes that were not applied, as far as how does not allow that.
	Remove(ctx context.Context, name string, how Removal) (Removed, error)
	// Unused lists the sandboxes that do not run and hold nothing, or whatever they hold
	// if o.Force is set. Errors: as Sandboxes.
	Unused(ctx context.Context, o UnusedOptions) ([]Unused, error)

	// RemoveUnused removes a sandbox that was made for one command, unless it holds
	// something or somebody else uses it.
	RemoveUnused(ctx context.Context, sb Sandbox) (Left, error)

	// Policy tells what the rules of a sandbox are, and what patterns mean there.
	Policy(ctx context.Context, name string) (Policy, error)

	// SetPolicy replaces the rules of a sandbox, of a running one at once.
	SetPolicy(ctx context.Context, name string, r Rules) error
	// ChangeHosts grants and revokes hosts of a sandbox's network, of a running one at
	// once, and returns the sandbox as it is then. Errors: Precondition for a sandbox with
	// another network; NotFound for a host to revoke.
	ChangeHosts(ctx context.Context, name string, c hostlist.Change) (Sandbox, error)
	// Explain says what the rules of a sandbox, and the extra ones, say of paths.
	Explain(ctx context.Context, name string, extra []policy.Rule, paths []vpath.Path) (Explained, error)
	// ExplainMount says what the rules of a mount of a sandbox say of paths, which begin at its
	// root. Errors: NotFound for a name that no mount has; Unsupported for a mount without rules.
	ExplainMount(ctx context.Context, name, mount string, paths []vpath.Path) (Explained, error)

	// Changes opens what a sandbox changed in its workspace, or in the mount that has the
	// name. Where this process may not read all of it,
	// another one runs with the command line again, and the error is a *DoneError. If again is
	// nil, that is an error. Errors: Precondition. A server
	// is asked for the sandbox by the methods of Changes. Errors: Unsupported for a mount in
	// which nothing can be written.
	Changes(ctx context.Context, name, mount string, again []string) (Changes, error)
	// Pending counts the changes in each mount in which something can be written, in their
	// order. Errors: those of a review.
	Pending(ctx context.Context, name string) ([]MountChanges, error)
	// Keep applies what rules with apply: keep match, if no command runs. It returns what it did
	// in the workspace and in each mount that has such rules, also beside an error. Errors: as
	// Changes.
	Keep(ctx context.Context, name string) ([]Kept, error)
	// View opens what a sandbox sees. Close it after. Errors: as Changes.
	View(ctx context.Context, name, mount string, again []string) (View, error)

	// Logs calls do with what the detached commands of a sandbox wrote, with follow until
	// the last of them has ended.
	Logs(ctx context.Context, name string, follow bool, do func(outlog.Record) error) error
	// Audit calls do with each audit record of a sandbox behind the number after, with
	// follow also with those to come until ctx ends. On this host it takes the id of a
	// removed sandbox too.
	Audit(ctx context.Context, name string, after uint64, follow bool, do func(audit.Record) error) error
	// VerifyAudit checks that no record of a log was changed, removed or moved.
	VerifyAudit(ctx context.Context, name string, known []audit.Head) (audit.Summary, error)
	// ArchiveAudit moves the records of a log into a new file. Errors: Precondition if
	// the file exists or cannot be made.
	ArchiveAudit(ctx context.Context, name, file string) error
	// PruneAudit deletes the logs of sandboxes that were removed longer ago than age.
	PruneAudit(ctx context.Context, age time.Duration) (logs int, err error)
}

// Inspection is a sandbox and what runs in it.
type Inspection struct {
	Sandbox
	// Of a sandbox of this host:
	Running             *api.Status // nil if it does not run
	Directory, AuditLog record.HostPath
}

// StopOptions say how long a supervisor may take. Only this host's can be killed.
type StopOptions struct {
	Force   bool           // a second
	Timeout *time.Duration // nil for the default
}

// Stopped says how a sandbox ended.
type Stopped struct {
	Name     string
	Killed   bool          // its supervisor was killed
	Silent   bool          // because it did not answer, else because of the time:
	Patience time.Duration // how long it might take
}

// Removal is what Remove puts up with.
type Removal int

// The removals.
const (
	RemoveEmpty  Removal = iota // a stopped sandbox without changes
	RemoveIdle                  // a stopped sandbox; a server stops it
	RemoveForced                // any sandbox, also one that does not exist
)

// Removed is a sandbox that is gone.
type Removed struct {
	Name string // "" for one of which nothing is known
	ID   record.ID
	// Stopped is how it ended, if it ran.
	Stopped Stopped
	// LogHere says that Audit still reads its log.
	LogHere bool
}

// Left says what became of a sandbox that was to be removed if it is unused.
type Left struct {
	HasChanges, InUse bool // why it stays
	Refused           bool // its audit log tells of a refusal
	LogHere           bool // as Removed.LogHere
	// Synced is what a server brought into the codebase by itself.
	Synced []vpath.Path
}

// Policy is the policy of a sandbox.
type Policy struct {
	Sandbox
	// Reserved are paths that are hidden whatever the rules say.
	Reserved []vpath.Path
	// IsDir reports whether a path of the source is a directory. Of what cannot be told
	// it reports false.
	IsDir func(path string) bool
}

// Rules are a new policy of a sandbox.
type Rules struct {
	Rules  []policy.Rule
	Note   string                // for people: where they are from
	Marks  []policyfile.RiskFlag // of a policy file; a server knows the built-in ones alone
	Reason string                // for the audit log of this host
	// From are the rules to which others were added; nil if Rules replace them. A fork checks that
	// they are still in force: a grant may have ended.
	From []policy.Rule
	// Grants says that the user gave a flag that may permit more. Without, a server refuses a fork
	// with rules that permit more.
	Grants bool
}

// Explained is what rules say of paths.
type Explained struct {
	Rules []policy.Rule // all that were looked at
	Paths []ExplainedPath
	// Tracked is what git keeps of hidden files, as far as it is known.
	Tracked gitview.Tracked
}

// ExplainedPath is what rules say of a path.
type ExplainedPath struct {
	policy.Explanation
	IsDir bool // it is known to be a directory
}

// UnusedOptions say which sandboxes are to be removed.
type UnusedOptions struct {
	Older time.Duration // nothing has happened in them for so long
	Force bool          // also those with changes that were not applied
}

// Unused is a sandbox that may be removed.
type Unused struct {
	Name  string
	Holds Holds
	// Remove removes it, unless it is used or holds more by now.
	Remove func(ctx context.Context) error
}

// Holds is what is lost with a sandbox.
type Holds struct {
	Changes  int  // that were not applied
	Some     bool // there are changes, which were not counted
	Unknown  bool // nobody can tell
	KeptHome bool // only that
}

// Nothing reports whether nothing is lost.
func (h Holds) Nothing() bool { return h == Holds{} }

// HoldsOf is what is lost with changes and the home of a record.
func HoldsOf(changes int, home string) Holds {
	return Holds{Changes: changes, KeptHome: changes == 0 && home == record.HomeKeep}
}
