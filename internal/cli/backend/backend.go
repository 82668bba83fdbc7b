package backend

import (
	"context"
	"io"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Backend is what the verbs ask of the sandboxes of this host (package local) or of a
// server (package remote). A server takes an id in place of a name.
//
// Errors of every method that takes a name: NotFound. What an implementation cannot do
// is a *LocalOnlyError.
type Backend interface {
	io.Closer

	// Sandboxes lists the sandboxes, with what each holds if usage is set. An error that
	// concerns some of them comes with a list of the others, which is not nil.
	Sandboxes(ctx context.Context, usage bool) ([]Sandbox, error)
	// Inspect tells what a sandbox is and what runs in it.
	Inspect(ctx context.Context, name string) (Inspection, error)
	// Stop ends everything that runs in a sandbox. One that does not run is no error.
	Stop(ctx context.Context, name string, o StopOptions) (Stopped, error)
	// Remove removes a sandbox. Its audit log stays. Errors: Precondition if it runs or
	// holds changes that were not applied, unless force is set.
	Remove(ctx context.Context, name string, force bool) (Removed, error)
	// Unused lists the sandboxes that do not run and hold nothing, or whatever they hold
	// if o.Force is set. Errors: as Sandboxes.
	Unused(ctx context.Context, o UnusedOptions) ([]Unused, error)

	// Logs calls do with what the detached commands of a sandbox wrote, with follow until
	// the last of them has ended.
	Logs(ctx context.Context, name string, follow bool, do func(outlog.Record) error) error
	// Audit calls do with each audit record of a sandbox, with follow also with those to
	// come until ctx ends. On this host it takes the id of a removed sandbox too.
	Audit(ctx context.Context, name string, follow bool, do func(audit.Record) error) error
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

// Removed is a sandbox that is gone.
type Removed struct {
	Name string // "" for one of which nothing is known
	ID   record.ID
	// Stopped is how it ended, if it ran.
	Stopped Stopped
	// LogHere says that Audit still reads its log.
	LogHere bool
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
