// Package backend is what the verbs of the command line ask of sandboxes: Backend, which
// package local implements for this host and package remote for a server. It also has
// the words for what is asked and answered.
//
// It does no I/O by itself. What reaches a server is package remote, whose
// libraries the program that runs for each sandbox must not be linked with.
package backend

import (
	"slices"
	"time"

	"github.com/agentfense/agentfense/internal/sandbox/cleangit"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review/held"
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
	Usage     *held.Usage       // nil where the server does not tell, or was not asked
	Variables []record.HostPath // names of those that its commands have
	Secrets   []ServerSecret    // of the server; those of this host are in the record
	// Mount is the mount that is meant in place of the workspace; "" for that.
	Mount string
	// HostPrograms says that it has programs of this host, at their paths.
	HostPrograms bool
	// UnsavedBranches counts what has commits, in the clean repository of a server's sandbox, that
	// are nowhere else.
	UnsavedBranches int
}

// ServerSecret is a secret of a server that a sandbox uses.
type ServerSecret struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
}

// Ref names the sandbox in a call: a server's has an id, this host's a name.
func (s *Sandbox) Ref() string {
	if s.Record.Served != nil {
		return string(s.Record.ID)
	}
	return s.Record.Name
}

// ChangesRef returns how a command names the changes that are meant: "fix", or "fix --in data".
func (s *Sandbox) ChangesRef() string {
	if s.Mount == "" {
		return s.Record.Name
	}
	return s.Record.Name + " --in " + s.Mount
}

// NewSandbox is what a sandbox is made of.
type NewSandbox struct {
	Name       string        // "" for a generated one
	Source     record.Source // a directory of this host, which a server gets a copy of
	CodebaseID string        // of a server, in place of Source
	Rules      Rules
	Runtime    string // "" for the default
	Image      string // "" for the default
	User       string // "" for the default
	Net        string
	AllowNet   []string          // the hosts of record.NetNamed
	NetLimits  string            // as hostlist.ParseLimits returns them
	Secrets    []hostlist.Secret // without placeholders
	Publish    []published.Port
	// ServerSecrets are names of secrets of a server.
	ServerSecrets []string
	Mounts        []string // as mountspec.Parse reads them
	Toolchains    bool     // some of Mounts are this host's toolchains
	Scratch       []string // as scratch.Parse reads them
	Git           cleangit.Mode
	// MountRules reads the policy file of a mount of a sandbox with the source.
	MountRules func(file, source string) ([]policy.Rule, error)
	Home       string // as a record has it
	Limits     record.Limits
	Ask        *record.Ask // nil: refusals do not wait for an answer
	Board      bool        // programs inside may use the board of the source
	Env        []string    // of all its commands: NAME=VALUE, or NAME for the caller's value
	Uploading  Uploading
	// ForCommand says that it is made for a command, which is given Limits.Timeout itself.
	ForCommand bool
	// Rebase says that the directory that is in the place of the source of a known sandbox
	// is its source now.
	Rebase bool
	// Fill writes the changes with which a sandbox of this host begins, in the directory that
	// becomes the sandbox's. Nil writes nothing.
	Fill func(home *record.Home, r *record.Record, dir string) error
	// Contributors are where these changes are from.
	Contributors []record.Contributor
}

// Reopening says what changes of a known sandbox, before a command runs in it.
type Reopening struct {
	New   NewSandbox // of which the given flags count
	Flags []string   // the names of those
	Dir   string     // as it was given
	Here  string     // the caller's directory
	// NewRules says that the policy will be replaced after this.
	NewRules bool
}

// Given reports whether one of the flags was given.
func (r *Reopening) Given(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.Flags, n) })
}

// Token is what is kept of a token. The token itself is not.
type Token struct {
	Name      string    `json:"name"`
	OwnerID   string    `json:"owner_id"` // "" reaches everybody's things
	Scopes    string    `json:"scopes"`   // "read,exec"
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}
