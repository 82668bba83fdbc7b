package backend

import (
	"context"
	"io"
	"os"
	"syscall"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/outlog"
	"github.com/agentfense/agentfense/internal/sandbox/readview"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/transfer/scan"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Server is the sandboxes of a server, and what only a server has. Errors have the kind
// and the text that the server gave them.
type Server interface {
	Backend

	// Raw is for verbs that are not yet written for a Backend.
	Raw() Raw

	CreateCodebase(ctx context.Context, name, owner string) (Codebase, error)
	Codebase(ctx context.Context, id string) (Codebase, error)
	Codebases(ctx context.Context, owner string) ([]Codebase, error)
	DeleteCodebase(ctx context.Context, id string) error
	Files(ctx context.Context, id string, dir vpath.Path, recursive bool) ([]scan.File, error)
	Download(ctx context.Context, w io.Writer, id string, path vpath.Path) error
	Upload(ctx context.Context, id string, next func() (scan.File, *os.File, error)) (files int64, err error)

	// BringBack brings changes into the directory that was uploaded for a sandbox, and
	// then into the codebase. Errors: those of apply.Upload; Internal for what was not
	// shown.
	BringBack(ctx context.Context, name string, u *record.Upload, paths []vpath.Path, dryRun bool, take Reviewed) (apply.Result, error)
}

// Reviewed is what an apply takes of a server's sandbox.
type Reviewed struct {
	Digest string // the server's, "" for all that is there
	// Shown is what the server showed of it, nil where that is not known here.
	Shown *apply.Shown
}

// Raw is the calls of a server.
type Raw interface {
	Files(ctx context.Context, id string, dir vpath.Path, recursive bool) ([]scan.File, error)
	DeleteCodebase(ctx context.Context, id string) error
	// Sandboxes lists the sandboxes that may be seen, with what each holds if usage is set.
	Sandboxes(ctx context.Context, usage bool) ([]Sandbox, error)
	Sandbox(ctx context.Context, name string) (Sandbox, error)
	Create(ctx context.Context, n NewSandbox) (Sandbox, error)
	Start(ctx context.Context, id string) error
	Stop(ctx context.Context, id string) error
	Destroy(ctx context.Context, id string) error
	DestroyUnused(ctx context.Context, id string) error
	InUse(ctx context.Context, id string) (bool, error)

	// The errors of a command that was certainly not started hold a
	// *NotStartedError.
	Attach(ctx context.Context, c Command) (Attached, error)
	Detach(ctx context.Context, c Command, stderr io.Writer) (Exit, error)

	Review(ctx context.Context, s Sandbox, paths []vpath.Path, namesOnly bool, shown string) (*review.Review, error)
	Apply(ctx context.Context, s Sandbox, paths []vpath.Path, dryRun bool, reviewed string) (apply.Result, error)
	// Changes calls put with each change at and below the paths, parents first, and
	// of a regular file with its content.
	Changes(ctx context.Context, s Sandbox, paths []vpath.Path, reviewed string, put func(apply.CarriedChange, io.Reader) error) error
	Discard(ctx context.Context, id string, paths []vpath.Path, dryRun bool) (apply.DiscardResult, error)
	ListView(ctx context.Context, id string, path vpath.Path, itself bool) ([]readview.Entry, error)
	ReadView(ctx context.Context, w io.Writer, id string, path vpath.Path) error

	SetPolicy(ctx context.Context, id string, rules []policy.Rule) error
	Explain(ctx context.Context, s Sandbox, path vpath.Path) (policy.Explanation, error)
	Logs(ctx context.Context, id string, follow bool, do func(outlog.Record) error) error
	Audit(ctx context.Context, id string, after uint64, follow bool, do func(audit.Record) error) error
}

// Attached is a command that runs in a sandbox with its streams here. Its
// methods may be called concurrently.
type Attached interface {
	io.Writer // the command's standard input; never fails
	CloseInput()
	Resize(rows, columns uint16)
	Signal(s syscall.Signal)
	// Wait copies the command's output until it has ended and tells how.
	Wait(stdout, stderr io.Writer) (Exit, error)
}

// Tokens are those of this host's server.
type Tokens interface {
	io.Closer
	// Issue makes a token and returns it this once. Errors: Exists for a name
	// that is taken; Invalid.
	Issue(ctx context.Context, t Token) (secret string, err error)
	List(ctx context.Context) ([]Token, error)
	// Revoke forgets a token. Errors: NotFound.
	Revoke(ctx context.Context, name string) error
}
