package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
)

// The home directories that a sandbox's commands can have.
const (
	HomePrivate = "private" // new and empty with each start; "" in a record
	HomeKeep    = "keep"    // stays until the sandbox is removed
)

// Homes lists them.
func Homes() []string { return []string{HomeKeep, HomePrivate} }

// KeptHomeInside is where a kept home is inside. Nothing else is mounted there: the
// workspace often lies in the user's own home directory, and a mount point below a
// kept one would be reached by names that commands have made, which may be links.
const KeptHomeInside = "/run/agentfense/home"

// keptHomeDir is its name in the sandbox's directory, beside the layers: it is in no
// diff and is never applied, and it is removed with the sandbox.
const keptHomeDir = "home"

// checkHome refuses a kept home that the sandbox cannot have.
func (r *Record) checkHome() error {
	switch {
	case r.Home == "":
		return nil
	case r.Home != HomeKeep:
		return fault.New(fault.Precondition, "home %q is unknown", r.Home)
	case r.Runtime != RuntimeBwrap:
		return fault.New(fault.Precondition, "a kept home (--home keep) needs runtime %s, this is %s", RuntimeBwrap, r.Runtime)
	case r.Limits.DiskBytes > 0 || r.Limits.DiskInodes > 0:
		return fault.New(fault.Precondition, "a kept home (--home keep) is a directory of the host's, which the limit of the disk (--disk) could not bound: leave one of them out, or set --disk 0")
	}
	overlap := func(path string) bool {
		return path == KeptHomeInside || strings.HasPrefix(path, KeptHomeInside+"/") || strings.HasPrefix(KeptHomeInside, strings.TrimSuffix(path, "/")+"/")
	}
	if overlap(r.Workspace) {
		return fault.New(fault.Precondition, "a kept home (--home keep) is at %s, which the workspace %s takes", KeptHomeInside, HostPath(r.Workspace))
	}
	for _, m := range r.Mounts {
		if overlap(string(m.Target)) {
			return fault.New(fault.Precondition, "a kept home (--home keep) is at %s, which the mount at %s takes", KeptHomeInside, m.Target)
		}
	}
	return nil
}

// KeptHome returns the kept home on the host, "" if the sandbox has none. It is made
// where it is missing, as the sandbox's user's own. The caller holds the sandbox.
// Errors: Precondition if something else is in its place.
func (s *Sandbox) KeptHome() (string, error) {
	if s.record.Home != HomeKeep {
		return "", nil
	}
	path := filepath.Join(s.Dir(), keptHomeDir)
	made := unix.Mkdir(path, 0o700)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return "", hostError("kept home", &os.PathError{Op: "mkdir", Path: path, Err: made})
	}
	owner := uint32(os.Geteuid())
	if s.record.HostUID != 0 {
		owner = s.record.HostUID
	}
	if made == nil && s.record.HostUID != 0 {
		if err := os.Lchown(path, int(owner), int(owner)); err != nil {
			return "", errors.Join(hostError("kept home", err), unix.Rmdir(path))
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", hostError("kept home", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != owner {
		return "", fault.New(fault.Precondition, "kept home %s: not a directory of uid %d: remove it", HostPath(path), owner)
	}
	return path, nil
}
