package backend

import (
	"context"
	"io"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/uploaded"
	"github.com/agentfense/agentfense/internal/transfer/scan"
)

// Server is the sandboxes of a server, and what only a server has. Errors have the kind
// and the text that the server gave them.
type Server interface {
	Backend
	Export

	Codebases(ctx context.Context, owner string) ([]Codebase, error)
	DeleteCodebase(ctx context.Context, id string) error
	// Files lists a directory of a codebase, with recursive all below it.
	Files(ctx context.Context, id string, dir vpath.Path, recursive bool) ([]scan.File, error)
	Download(ctx context.Context, w io.Writer, id string, path vpath.Path) error
	// Push uploads a directory. A new codebase into which not all could be uploaded does
	// not stay.
	Push(ctx context.Context, p Push) (Codebase, error)
	// BringBack brings changes into the directory that was uploaded for a sandbox, and
	// then into the codebase. Errors: those of apply.Upload; Internal for what was not
	// shown.
	BringBack(ctx context.Context, name string, u *uploaded.Directory, paths []vpath.Path, dryRun bool, take Reviewed) (apply.Result, error)
}

// Push is a directory to be uploaded.
type Push struct {
	Dir   string
	To    string // the codebase, "" for a new one with a name and an owner
	Name  string // "" for that of the directory
	Owner string // "" for the token's owner, else this user
	Uploading
}

// Uploading is told how an upload goes. Each of its functions may be nil.
type Uploading struct {
	Progress func(done, total int)
	// Skipped gets the paths that were left out because they are no file, directory or
	// link.
	Skipped func(paths []vpath.Path)
	// Stays gets the error of removing a codebase of which not all was uploaded.
	Stays func(id string, err error)
}

// Reviewed is what an apply takes of a server's sandbox.
type Reviewed struct {
	Digest string // the server's, "" for all that is there
	// Shown is what the server showed of it, nil where that is not known here.
	Shown *apply.Shown
	// Attest, if not nil, gets the server's statement about what the codebase got.
	Attest func(statement []byte)
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
