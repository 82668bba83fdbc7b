package record

import (
	"cmp"
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

// auditSuffix is the suffix of an audit log's name.
const auditSuffix = ".jsonl"

// Home is the state directory of one user.
type Home struct {
	dir   string
	audit config.Audit
	// History bounds what is kept to undo applies.
	History config.History
	outer   string // the state directory that contains it, or ""
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

// OpenHomeAt opens the state directory dir and makes its missing parts, with mode 0700.
// Errors: Precondition if another user owns it or may write to it, because that user could
// change its records; Denied, Exhausted and Invalid from the file system; Invalid for a
// variable that bounds the audit logs.
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
	if h.History, err = config.HistoryOf(os.Environ()); err != nil {
		return nil, err
	}
	if err := makePrivate(h.sandboxesDir(), h.auditDir()); err != nil {
		return nil, err
	}
	h.keepReserve()
	return h, nil
}

// checkPrivate refuses a directory that another user could have changed.
func checkPrivate(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return errdefs.New(errdefs.Precondition, "state directory %s: %w", dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errdefs.New(errdefs.Precondition, "state directory %s: not a directory", dir)
	case st.Uid != uint32(os.Geteuid()):
		return errdefs.New(errdefs.Precondition, "state directory %s: owned by uid %d, not by you (uid %d): set AGENTFENSE_HOME to a directory that you own", dir, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return errdefs.New(errdefs.Precondition, "state directory %s: mode %04o lets other users write: run chmod go-w on it", dir, st.Mode&0o7777)
	}
	return nil
}

// Within opens the state directory with that name in h, and makes it if it is absent. Errors: as
// OpenHomeAt.
func (h *Home) Within(name string) (*Home, error) {
	in := &Home{dir: filepath.Join(h.dir, name), audit: h.audit, History: h.History, outer: h.dir}
	if err := makePrivate(in.dir, in.sandboxesDir(), in.auditDir()); err != nil {
		return nil, err
	}
	return in, nil
}

// makePrivate makes directories that are absent, and checks them.
func makePrivate(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return HostError("state directory", err)
		}
		if err := checkPrivate(dir); err != nil {
			return err
		}
	}
	return nil
}

// Dir returns the state directory's absolute path without symbolic links.
func (h *Home) Dir() string { return h.dir }

// OutermostDir returns Dir, or that of the state directory that contains it.
func (h *Home) OutermostDir() string { return cmp.Or(h.outer, h.dir) }

// AuditPath returns the path of the audit log of sandbox id.
func (h *Home) AuditPath(id ID) string { return filepath.Join(h.auditDir(), string(id)+auditSuffix) }

func (h *Home) sandboxesDir() string { return filepath.Join(h.dir, "sandboxes") }

func (h *Home) auditDir() string { return filepath.Join(h.dir, "audit") }

// DirOf returns the directory of the sandbox with that name, whether there is one or not.
func (h *Home) DirOf(name string) string { return h.sandboxDir(name) }

func (h *Home) sandboxDir(name string) string { return filepath.Join(h.sandboxesDir(), name) }

// Locked runs do with the home's lock, which excludes changes of records, of the trust
// store and of which sandboxes exist. It waits for the lock. do must be short.
func (h *Home) Locked(do func() error) error {
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

// HostError gives an error of the host's file system its kind.
func HostError(what string, err error) error {
	return errdefs.New(safefs.Kind(err), "%s: %w", what, err)
}
