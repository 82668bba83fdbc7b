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

// The home directories that a sandbox's commands can have.
const (
	HomePrivate = "private" // new and empty with each start; "" in a record
	HomeKeep    = "keep"    // stays until the sandbox is removed
)

// Homes lists them.
func Homes() []string { return []string{HomeKeep, HomePrivate} }

// ParseHome reads such a word, "" for HomePrivate, into what a record has. Errors: Invalid.
func ParseHome(word string) (string, error) {
	switch word {
	case HomeKeep:
		return HomeKeep, nil
	case "", HomePrivate:
		return "", nil
	}
	return "", errdefs.New(errdefs.Invalid, "home %q: want keep or private", word)
}

// HomeWord is the word for what the record has.
func (r *Record) HomeWord() string { return cmp.Or(r.Home, HomePrivate) }

// KeptHomeInside is where a kept home is inside. Nothing else is mounted there: the
// workspace often lies in the user's own home directory, and a mount point below a
// kept one would be reached by names that commands have made, which may be links.
const KeptHomeInside = "/run/agentfense/home"

// keptHomeDir is the name of its layers in the sandbox's directory, beside those of the
// workspace: it is in no diff and is never applied, and it is removed with the sandbox.
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
		return errdefs.New(errdefs.Precondition, "a kept home (--home keep) is at %s, which the workspace %s takes", KeptHomeInside, HostPath(r.Workspace))
	}
	for _, m := range r.Mounts {
		if overlap(string(m.Target)) {
			return errdefs.New(errdefs.Precondition, "a kept home (--home keep) is at %s, which the mount at %s takes", KeptHomeInside, m.Target)
		}
	}
	return nil
}

// KeptHomeDir returns the directory on the host that holds the layers of the kept home,
// which are made on first use; "" if the sandbox keeps none. Errors: Precondition if
// something else is in its place.
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
