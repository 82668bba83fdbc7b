// Package record stores sandboxes: the record, the name, the lock and the directory of
// each.
//
// The state directory (Home) belongs to one user and has mode 0700. A sandbox is one
// directory in it, NAME/, with its record sandbox.json, its lock and its layers/. The
// directory appears and disappears by one rename each. A process that changes a sandbox's
// delta holds its lock: the supervisor while it runs, else the command that applies,
// discards or removes.
//
// Lock order: a sandbox's lock, then the home's.
package record

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ID identifies a sandbox: "sb_" and 16 hex digits. After rm, a name may be reused, an ID
// never.
type ID = id.Sandbox

// nameForm has no bounded repetition, which would take 80 kB to compile in every process of
// a sandbox.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

const maxNameBytes = 63

// CheckName checks a sandbox's name: 1 to 63 of a-z 0-9 . _ - that start with a letter or
// digit, and not with the prefix of an ID. Errors: Invalid.
func CheckName(name string) error {
	switch {
	case len(name) > maxNameBytes, !nameForm.MatchString(name):
		return errdefs.New(errdefs.Invalid, "sandbox name %s: want 1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit", vpath.Quote(name))
	case strings.HasPrefix(name, id.SandboxPrefix):
		return errdefs.New(errdefs.Invalid, "sandbox name %s: names starting with %q are reserved for ids", vpath.Quote(name), id.SandboxPrefix)
	}
	return nil
}

// checkDirName checks the name of a sandbox's directory: a name or an ID.
func checkDirName(name string) error {
	if ID(name).IsValid() {
		return nil
	}
	return CheckName(name)
}

// Sandbox is one sandbox of a Home. Several goroutines may call its methods, except where a
// method says otherwise.
type Sandbox struct {
	Home   *Home
	Stored Record
	part   *inMount // nil: the workspace
}

// Record returns the sandbox's record, as of Open or the last Update.
func (s *Sandbox) Record() Record { return s.Stored.clone() }

// ID returns the sandbox's ID.
func (s *Sandbox) ID() ID { return s.Stored.ID }

// Name returns the sandbox's name.
func (s *Sandbox) Name() string { return s.Stored.Name }

// Dir returns the sandbox's directory on the host.
func (s *Sandbox) Dir() string { return s.Home.sandboxDir(s.Stored.Name) }

// LayersDir returns the directory of the sandbox's layer stack.
func (s *Sandbox) LayersDir() string { return filepath.Join(s.ChangesDir(), layersDir) }

// LogPath returns the path of the supervisor's log.
func (s *Sandbox) LogPath() string { return filepath.Join(s.Dir(), "supervisor.log") }

// AuditPath returns the path of the sandbox's audit log, which stays after Remove.
func (s *Sandbox) AuditPath() string { return s.Home.AuditPath(s.Stored.ID) }
