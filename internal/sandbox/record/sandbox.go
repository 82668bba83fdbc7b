// Package sandbox is what a sandbox means while nothing runs in it: its
// record, its lock, its place in the state directory, and what happens to the
// changes it made (diff, apply, discard).
//
// The state directory (Home) belongs to one user and has mode 0700. A sandbox
// is one directory in it, NAME/, with its record sandbox.json, its lock, and
// its layers/; the directory appears whole by one rename and disappears by
// one. Whoever changes a sandbox's delta holds its lock: the supervisor while
// it lives, else the command that applies, discards or removes.
//
// Apply and Discard promise that nothing is lost: a path whose source is not
// what the sandbox saw is refused, each file is replaced whole, and an entry
// leaves the delta only after the source holds it durably. The package never
// starts a process and never follows a symbolic link in a source or a delta.
//
// Lock order: a sandbox's lock, then the home's.
package sandbox

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/ident"
	"github.com/agentfense/agentfense/internal/vpath"
)

// ID names a sandbox for ever: "sb_" and 16 hex digits. A name may be used
// again after rm, an ID never is.
type ID = ident.Sandbox

// nameForm does not count: a program that does takes 80 kB to compile, in every
// process of a sandbox.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

const maxNameBytes = 63

// CheckName refuses what cannot name a sandbox: it must be 1 to 63 of
// a-z 0-9 . _ - and start with a letter or digit; what starts like an ID is
// kept for IDs. Errors: Invalid.
func CheckName(name string) error {
	switch {
	case len(name) > maxNameBytes, !nameForm.MatchString(name):
		return fault.New(fault.Invalid, "sandbox name %s: want 1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or digit", vpath.Quote(name))
	case strings.HasPrefix(name, ident.SandboxPrefix):
		return fault.New(fault.Invalid, "sandbox name %s: names starting with %q are kept for ids", vpath.Quote(name), ident.SandboxPrefix)
	}
	return nil
}

// checkDirName refuses what cannot name a sandbox's directory: besides names it
// may be the ID.
func checkDirName(name string) error {
	if ID(name).IsValid() {
		return nil
	}
	return CheckName(name)
}

// Sandbox is one sandbox of a Home. Its methods may be called by several
// goroutines unless they say otherwise.
type Sandbox struct {
	home   *Home
	record Record
}

// Record returns the sandbox's record as it was when opened or last updated.
func (s *Sandbox) Record() Record { return s.record.clone() }

// ID returns the sandbox's ID.
func (s *Sandbox) ID() ID { return s.record.ID }

// Name returns the sandbox's name.
func (s *Sandbox) Name() string { return s.record.Name }

// Dir returns the sandbox's directory on the host.
func (s *Sandbox) Dir() string { return s.home.sandboxDir(s.record.Name) }

// LayersDir returns the directory of the sandbox's layer stack.
func (s *Sandbox) LayersDir() string { return filepath.Join(s.Dir(), layersDir) }

// ControlPath returns the path of the supervisor's socket.
func (s *Sandbox) ControlPath() string { return filepath.Join(s.Dir(), "control") }

// LogPath returns the path of the supervisor's log.
func (s *Sandbox) LogPath() string { return filepath.Join(s.Dir(), "supervisor.log") }

// AuditPath returns the path of the sandbox's audit log, which outlives it.
func (s *Sandbox) AuditPath() string { return s.home.AuditPath(s.record.ID) }
