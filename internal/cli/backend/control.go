// Package backend is a server as the command line and the Go client see it: the
// words in which things are asked of it and told, and how the changes of its
// sandbox come back into the directory that was uploaded (BringBack).
//
// It does no I/O by itself. What reaches a server is package remote, whose
// libraries the program that runs for each sandbox must not be linked with.
package backend

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Codebase is a source that a server knows.
type Codebase struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	OwnerID   string    `json:"owner_id"`
	SizeBytes int64     `json:"size_bytes"`
	FileCount int64     `json:"file_count"`
	Linked    bool      `json:"linked"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Sandbox is a server's sandbox. Its record has no paths of the server's host.
type Sandbox struct {
	Record    record.Record
	Status    record.Status
	Usage     *review.Usage     // nil where the server does not tell, or was not asked
	Variables []record.HostPath // names of those that its commands have
}

// Ref names the sandbox in a call: a server's has an id, this host's a name.
func (s *Sandbox) Ref() string {
	if s.Record.Served != nil {
		return string(s.Record.ID)
	}
	return s.Record.Name
}

// NewSandbox is what a sandbox is made of.
type NewSandbox struct {
	Name       string // "" for its id
	CodebaseID string
	Rules      []policy.Rule
	Runtime    string // "" for the server's default
	Image      string
	User       string // "" for the server's default
	Home       string // as a record has it
	Git        gitconfig.User
	Limits     record.Limits
	Sync       config.Sync       // "" for what the server is configured to do
	Env        map[string]string // of all its commands
}

// Command is a command to be run in a sandbox.
type Command struct {
	SandboxID string
	Argv      []string
	Env       map[string]string
	Remember  map[string]string // as Env, and for the later commands of the sandbox
	Dir       string            // "" for the workspace
	Timeout   time.Duration
	Rows      uint16 // of a terminal of its own; 0: it gets pipes
	Columns   uint16
}

// NotStartedError is an error of which the server says that it is certain that
// nothing of the command has run.
type NotStartedError struct{ error }

// NotStarted says so of err.
func NotStarted(err error) error { return &NotStartedError{err} }

// Unwrap is the error.
func (e *NotStartedError) Unwrap() error { return e.error }

// Exit is how a command ended.
type Exit struct {
	Code int
	// Conflicts are paths that the command changed and somebody outside too, as
	// many as the server tells of; ConflictCount is how many there were.
	Conflicts     []string
	ConflictCount int64
	// SyncHeld says that what the command changed waits in the sandbox for an apply.
	SyncHeld bool
	// Refused is what the policy refused the command, as much as the server tells
	// of, without the sources of rules; Touched are the paths that it made or changed.
	Refused []audit.PermissionDenied
	Touched []vpath.Path
}

// Token is what is kept of a token. The token itself is not.
type Token struct {
	Name      string    `json:"name"`
	OwnerID   string    `json:"owner_id"` // "" reaches everybody's things
	Scopes    string    `json:"scopes"`   // "read,exec"
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}
