// Package control is a server as the command line sees it: where it is, and
// the words in which things are asked of it and told.
//
// It is vocabulary, without I/O. What reaches a server is package remote, whose
// libraries the program that runs for each sandbox must not be linked with.
package control

import (
	"time"

	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/gitconfig"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
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

// Status is where a server's sandbox stands.
type Status string

// The statuses.
const (
	Pending Status = "pending" // made, never started
	Running Status = "running"
	Stopped Status = "stopped"
	Failed  Status = "error" // a start failed or the supervisor died
)

// Sandbox is a server's sandbox. Its record has no paths of the server's host.
type Sandbox struct {
	Record sandbox.Record
	Status Status
}

// NewSandbox is what a sandbox is made of.
type NewSandbox struct {
	Name       string // "" for its id
	CodebaseID string
	Rules      []policy.Rule
	Runtime    string // "" for the server's default
	Image      string
	User       string // "" for the server's default
	Git        gitconfig.User
	Limits     sandbox.Limits
	Sync       config.Sync // "" for what the server is configured to do
}

// Command is a command to be run in a sandbox.
type Command struct {
	SandboxID string
	Argv      []string
	Env       map[string]string
	Dir       string // "" for the workspace
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
}

// Token is what is kept of a token. The token itself is not.
type Token struct {
	Name      string    `json:"name"`
	OwnerID   string    `json:"owner_id"` // "" reaches everybody's things
	Scopes    string    `json:"scopes"`   // "read,exec"
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}
