package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/sandbox/config"
)

// auditSuffix ends the name of an audit log.
const auditSuffix = ".jsonl"

// Home is the state directory of one user.
type Home struct {
	dir   string
	audit config.Audit
	outer string // of the state directory in which it lies, "" for none
}

// OpenHome opens the state directory: $AGENTFENSE_HOME, else
// $XDG_DATA_HOME/agentfense, else $HOME/.local/share/agentfense. It is made
// if it is absent. Errors: Precondition if none of the three is set, or as
// OpenHomeAt.
func OpenHome(getenv func(string) string) (*Home, error) {
	dir, err := statedir.Path(getenv)
	if err != nil {
		return nil, err
	}
	return OpenHomeAt(dir)
}

// OpenHomeAt opens the state directory dir and makes what is missing of it,
// with mode 0700. Errors: Precondition if it belongs to another user or
// others may write to it, because its records would then be theirs; Denied,
// Exhausted and Invalid as the file system has it; Invalid for a variable that
// bounds the audit logs.
func OpenHomeAt(dir string) (*Home, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "state directory %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, HostError("state directory", err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, HostError("state directory", err)
	}
	if err := checkPrivate(dir); err != nil {
		return nil, err
	}
	h := &Home{dir: dir}
	if h.audit, err = config.AuditOf(os.Environ()); err != nil {
		return nil, err
	}
	for _, sub := range []string{h.sandboxesDir(), h.auditDir()} {
		if err := os.Mkdir(sub, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, HostError("state directory", err)
		}
		if err := checkPrivate(sub); err != nil {
			return nil, err
		}
	}
	h.keepReserve()
	return h, nil
}

// checkPrivate refuses a directory that somebody else could have filled.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return errdefs.New(errdefs.Precondition, "state directory %s: %w", dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errdefs.New(errdefs.Precondition, "state directory %s: not a directory", dir)
	case st.Uid != uint32(os.Geteuid()):
		return errdefs.New(errdefs.Precondition, "state directory %s: belongs to uid %d, not to you (uid %d): set AGENTFENSE_HOME to a directory of your own", dir, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return errdefs.New(errdefs.Precondition, "state directory %s: mode %04o lets others write: chmod go-w it", dir, st.Mode&0o7777)
	}
	return nil
}

// Dir returns the state directory's absolute path without symbolic links.
func (h *Home) Dir() string { return h.dir }

// AuditPath returns the path of the audit log of sandbox id.
func (h *Home) AuditPath(id ID) string { return filepath.Join(h.auditDir(), string(id)+auditSuffix) }

func (h *Home) sandboxesDir() string { return filepath.Join(h.dir, "sandboxes") }

func (h *Home) auditDir() string { return filepath.Join(h.dir, "audit") }

func (h *Home) sandboxDir(name string) string { return filepath.Join(h.sandboxesDir(), name) }

// locked runs do while no other process changes which sandboxes exist, their
// records or the trust store. It waits for its turn; do must be short.
func (h *Home) locked(do func() error) error {
	f, err := os.OpenFile(filepath.Join(h.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return HostError("state directory", err)
	}
	defer f.Close()
	if err := Flock(f, unix.LOCK_EX); err != nil {
		return HostError("state directory", &os.PathError{Op: "lock", Path: f.Name(), Err: err})
	}
	return do()
}

// HostError gives an error of the host's file system the kind a caller can
// act on.
func HostError(what string, err error) error {
	return errdefs.New(safefs.Kind(err), "%s: %w", what, err)
}
