package record

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// The kinds of home directories of a sandbox's commands.
const (
	HomePrivate = "private" // new and empty with each start; "" in a record
	HomeKeep    = "keep"    // exists until the sandbox is removed
)

// Homes lists them.
func Homes() []string { return []string{HomeKeep, HomePrivate} }

// ParseHome parses a kind of home; "" means HomePrivate. It returns the value for a record.
// Errors: Invalid.
func ParseHome(word string) (string, error) {
	switch word {
	case HomeKeep:
		return HomeKeep, nil
	case "", HomePrivate:
		return "", nil
	}
	return "", errdefs.New(errdefs.Invalid, "home %q: want keep or private", word)
}

// HomeWord returns the kind of home of the record.
func (r *Record) HomeWord() string { return cmp.Or(r.Home, HomePrivate) }

// KeptHomeInside is the path of a kept home inside. Nothing else is mounted below it: a
// command could replace a part of the path to such a mount point by a symbolic link. The
// user's own home path is unsuitable, because it often contains the workspace.
const KeptHomeInside = "/run/agentfense/home"

// keptHomeDir is the name of the kept home's layers in the sandbox's directory. They are
// not part of a diff, are never applied, and are removed with the sandbox.
const keptHomeDir = "home"

// checkHome refuses a kept home that the sandbox cannot have.
func (r *Record) checkHome() error {
	switch r.Home {
	case "":
		return nil
	case HomeKeep:
	default:
		return errdefs.New(errdefs.Precondition, "home %q is unknown", r.Home)
	}
	overlap := func(path string) bool {
		return path == KeptHomeInside || strings.HasPrefix(path, KeptHomeInside+"/") || strings.HasPrefix(KeptHomeInside, strings.TrimSuffix(path, "/")+"/")
	}
	if overlap(r.Workspace) {
		return errdefs.New(errdefs.Precondition, "a kept home (--home keep) is at %s, which overlaps with the workspace %s", KeptHomeInside, HostPath(r.Workspace))
	}
	for _, m := range r.Mounts {
		if overlap(string(m.Target)) {
			return errdefs.New(errdefs.Precondition, "a kept home (--home keep) is at %s, which overlaps with the mount at %s", KeptHomeInside, m.Target)
		}
	}
	return nil
}

// KeptHomeDir returns the host directory with the layers of the kept home, which it makes
// if absent, or "" if the sandbox keeps no home. Errors: Precondition if the path is not a
// directory of this user.
func (s *Sandbox) KeptHomeDir() (string, error) {
	if s.Stored.Home != HomeKeep {
		return "", nil
	}
	path := filepath.Join(s.Dir(), keptHomeDir)
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return path, nil
	case err != nil:
		return "", HostError("kept home", &os.PathError{Op: "stat", Path: path, Err: err})
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid():
		return "", errdefs.New(errdefs.Precondition, "kept home %s: not a directory of uid %d: remove it", HostPath(path), os.Geteuid())
	}
	return path, nil
}
