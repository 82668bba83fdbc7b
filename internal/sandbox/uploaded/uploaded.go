// Package uploaded stores what was uploaded of a directory for a server's sandbox, so that apply
// can bring the sandbox's changes back into it.
//
// Each such directory is stored as a sandbox in a separate state directory, within that of the
// user. The directory is its source, its rules are those that were sent, and the manifest of the
// uploaded files is beside its record. The changes that the server sends become its delta, which
// apply.Upload applies to the directory.
package uploaded

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/statedir"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

const (
	uploadsDir   = "uploads" // in the state directory
	manifestFile = "uploaded.json"
)

// Files are the files of an upload as they were at that time.
type Files struct {
	entries map[vpath.Path]layer.Base
	indexes map[vpath.Path][]byte // gitindex.Index.Sum of the git indexes
}

// Add adds an entry, which info describes. It reads the content of a regular file from the
// beginning, and leaves the offset there. Errors: those of the host.
func (f *Files) Add(p vpath.Path, info fs.FileInfo, target string, content *os.File) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errdefs.New(errdefs.Internal, "upload %s: it has no attributes of a file of this host", p)
	}
	var sum []byte
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		of := sha256.Sum256([]byte(target))
		sum = of[:]
	case content != nil && st.Size <= layer.ContentMax:
		h := sha256.New()
		_, err := io.Copy(h, io.NewSectionReader(content, 0, st.Size))
		if err != nil {
			return record.HostError("upload "+p.String(), err)
		}
		sum = h.Sum(nil)
	}
	if _, isIndex := gitindex.WorkTreeOf(p); isIndex && content != nil {
		if x, err := gitindex.Read(io.NewSectionReader(content, 0, st.Size)); err == nil {
			if f.indexes == nil {
				f.indexes = map[vpath.Path][]byte{}
			}
			of := x.Sum()
			f.indexes[p] = of[:]
		}
	}
	f.AddEntry(p, Entry{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, Nlink: uint32(st.Nlink),
		Mtime: unix.Timespec(st.Mtim), Ctime: unix.Timespec(st.Ctim), SHA256: sum,
	})
	return nil
}

// Entry describes an uploaded entry.
type Entry = layer.Base

// AddEntry adds an entry. It ignores a sum that is not a SHA-256 of a content of at most
// layer.ContentMax bytes.
func (f *Files) AddEntry(p vpath.Path, e Entry) {
	if len(e.SHA256) != sha256.Size || e.Size > layer.ContentMax {
		e.SHA256 = nil
	}
	if f.entries == nil {
		f.entries = map[vpath.Path]layer.Base{}
	}
	f.entries[p] = e
}

// Directory is an uploaded directory of a server's sandbox.
type Directory struct {
	Sandbox  *record.Sandbox
	manifest manifestForm
}

// manifestForm is the format of manifestFile.
type manifestForm struct {
	SchemaVersion int       `json:"schema_version"`
	ID            record.ID `json:"id"` // the server's sandbox's
	CodebaseID    string    `json:"codebase_id"`
	// Entries are by escaped path.
	Entries map[string]layer.Base `json:"entries"`
	// Indexes are the sums of the git indexes among the entries, by escaped path. git may
	// write an index again without changing its meaning.
	Indexes map[string][]byte `json:"indexes,omitempty"`
}

// nameOf returns the name of the upload of a server's sandbox.
func nameOf(key record.ID) (string, error) {
	if !key.IsValid() {
		return "", errdefs.New(errdefs.Internal, "sandbox %q: not an id", key)
	}
	return strings.TrimPrefix(string(key), id.SandboxPrefix), nil
}

// Remember stores that the directory source was uploaded to a codebase for a server's sandbox,
// with its rules.
func Remember(h *record.Home, id record.ID, codebaseID string, source record.Source, rules []policy.Rule, marks []policyfile.RiskFlag, files *Files) error {
	home, err := h.Within(uploadsDir)
	if err != nil {
		return err
	}
	name, err := nameOf(id)
	if err != nil {
		return err
	}
	sb, err := home.Create(record.Record{
		Name: name, Source: source, Workspace: "/workspace", Rules: rules, Marks: marks, Runtime: record.RuntimeBwrap, Net: record.NetNone,
	})
	if err != nil {
		return err
	}
	u := Directory{Sandbox: sb, manifest: manifestForm{
		SchemaVersion: record.SchemaVersion, ID: id, CodebaseID: codebaseID, Entries: make(map[string]layer.Base, len(files.entries)),
	}}
	for p, base := range files.entries {
		u.manifest.Entries[p.String()] = base
	}
	for p, sum := range files.indexes {
		u.SetIndex(p, sum)
	}
	if err := u.Store(); err != nil {
		return errors.Join(err, home.Remove(name))
	}
	return nil
}

// RememberFork stores for a fork of the server's sandbox, with its rules, what is stored for the
// sandbox.
func (u *Directory) RememberFork(fork record.ID, rules []policy.Rule) error {
	name, err := nameOf(fork)
	if err != nil {
		return err
	}
	r := u.Record()
	home := u.Sandbox.Home
	sb, err := home.Create(record.Record{
		Name: name, Source: r.Source, Workspace: r.Workspace, Rules: rules, Marks: r.Marks, Runtime: r.Runtime, Net: r.Net,
	})
	if err != nil {
		return err
	}
	of := Directory{Sandbox: sb, manifest: u.manifest}
	of.manifest.ID = fork
	err = of.Store()
	if err == nil {
		var names []string
		if names, err = u.Names(); err == nil && len(names) > 0 {
			err = of.RememberNames(names)
		}
	}
	if err != nil {
		return errors.Join(err, home.Remove(name))
	}
	return nil
}

// Store writes the record of the upload durably.
func (u *Directory) Store() error {
	text, err := json.Marshal(u.manifest)
	if err == nil {
		err = safefs.WriteDurably(u.Sandbox.Dir(), manifestFile, text)
	}
	if err != nil {
		return record.HostError("what was uploaded", err)
	}
	return nil
}

// Open returns the uploaded directory of a server's sandbox. Errors: NotFound if none is stored;
// Precondition if it is damaged.
func Open(h *record.Home, id record.ID) (*Directory, error) {
	name, err := nameOf(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(h.Dir(), uploadsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, record.NoSandbox(string(id))
	}
	home, err := h.Within(uploadsDir)
	if err != nil {
		return nil, err
	}
	u := &Directory{}
	if u.Sandbox, err = home.Open(name); err != nil {
		return nil, err
	}
	path := filepath.Join(u.Sandbox.Dir(), manifestFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // killed before it wrote the manifest
		return nil, record.NoSandbox(string(id))
	case err != nil:
		return nil, record.HostError("what was uploaded", err)
	}
	if err := json.Unmarshal(text, &u.manifest); err != nil {
		return nil, errdefs.New(errdefs.Precondition, "what was uploaded, %s: damaged: %w", path, err)
	}
	if m := u.manifest; m.SchemaVersion < 1 || m.SchemaVersion > record.SchemaVersion || m.ID != id {
		return nil, errdefs.New(errdefs.Precondition, "what was uploaded, %s: of sandbox %q and schema version %d, which this agentfense does not know", path, m.ID, m.SchemaVersion)
	}
	return u, nil
}

// Find is Open in the user's state directory, which need not exist.
func Find(getenv func(string) string, id record.ID) (*Directory, error) {
	dir, err := statedir.Path(getenv)
	if err != nil {
		return nil, record.NoSandbox(string(id))
	}
	if _, err := os.Lstat(filepath.Join(dir, uploadsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, record.NoSandbox(string(id))
	}
	home, err := record.OpenHome(getenv)
	if err != nil {
		return nil, err
	}
	return Open(home, id)
}

// Record returns the record of the directory.
func (u *Directory) Record() record.Record { return u.Sandbox.Record() }

// Forget removes what is stored of the uploaded directory of a server's sandbox.
func Forget(h *record.Home, id record.ID) error {
	u, err := Open(h, id)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return u.Forget()
}

// Forget is the function Forget, of u.
func (u *Directory) Forget() error {
	if err := u.Sandbox.Home.Remove(u.Sandbox.Name()); err != nil {
		return err
	}
	return u.Sandbox.Home.ForgetLog(u.Sandbox.ID())
}

// LockApply keeps other applies of the upload out until release is called. An apply stages
// what it fetched in the delta of the upload, which the next one empties. Errors:
// Precondition while another apply has the lock.
func (u *Directory) LockApply() (release func(), err error) {
	dir, err := os.Open(u.Sandbox.Dir())
	if err != nil {
		return nil, record.HostError("upload", err)
	}
	if err := record.Flock(dir, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errdefs.New(errdefs.Precondition, "directory %s: another apply to it is running; try again after it", u.Source().Path)
		}
		return nil, record.HostError("upload", err)
	}
	return func() { dir.Close() }, nil
}

// Source returns the uploaded directory.
func (u *Directory) Source() record.Source { return u.Sandbox.Stored.Source }

// CodebaseID returns the codebase to which it was uploaded.
func (u *Directory) CodebaseID() string { return u.manifest.CodebaseID }

// SetRules replaces the rules of the sandbox.
func (u *Directory) SetRules(rules []policy.Rule) error {
	return u.Sandbox.Update(func(r *record.Record) error {
		r.SetRules(rules, "")
		return nil
	})
}

// Index returns the sum of the uploaded git index at p, or nil if it is unknown.
func (u *Directory) Index(p vpath.Path) []byte { return u.manifest.Indexes[p.String()] }

// SetIndex sets the sum of the git index at p; nil removes it.
func (u *Directory) SetIndex(p vpath.Path, sum []byte) {
	switch _, isIndex := gitindex.WorkTreeOf(p); {
	case sum == nil || !isIndex:
		delete(u.manifest.Indexes, p.String())
	case u.manifest.Indexes == nil:
		u.manifest.Indexes = map[string][]byte{p.String(): sum}
	default:
		u.manifest.Indexes[p.String()] = sum
	}
}

// Base returns what was uploaded at p, or nil.
func (u *Directory) Base(p vpath.Path) *layer.Base {
	b, was := u.manifest.Entries[p.String()]
	if !was {
		return nil
	}
	return &b
}

// SetBase sets the base of p; nil or an Absent base removes it.
func (u *Directory) SetBase(p vpath.Path, b *layer.Base) {
	if b == nil || b.Absent {
		delete(u.manifest.Entries, p.String())
		return
	}
	u.manifest.Entries[p.String()] = *b
}

// RememberNames stores the names among variables for commands on the server, for which each
// command uses the caller's value. The server stores the others.
func (u *Directory) RememberNames(given []string) error {
	return u.Sandbox.RememberVariablesIf(given, func(v string) bool { return !strings.Contains(v, "=") })
}

// Names returns the stored names.
func (u *Directory) Names() ([]string, error) { return u.Sandbox.Variables() }
