package record

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
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// A directory that was uploaded for a server's sandbox is stored as a sandbox in a separate
// state directory, uploadsDir of the home. The directory is its source, its rules are those
// that were sent, and the manifest of the uploaded files is beside its record. The changes
// that the server sends become its delta, which apply.Upload applies to the directory.
const (
	uploadsDir   = "uploads"
	manifestFile = "uploaded.json"
)

// Uploaded has the files of an upload as they were at that time.
type Uploaded struct {
	entries map[vpath.Path]layer.Base
	indexes map[vpath.Path][]byte // gitindex.Index.Sum of the git indexes
}

// Add adds an entry, which info describes. It reads the content of a regular file from the
// beginning, and leaves the offset there. Errors: those of the host.
func (u *Uploaded) Add(p vpath.Path, info fs.FileInfo, target string, content *os.File) error {
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
			return HostError("upload "+p.String(), err)
		}
		sum = h.Sum(nil)
	}
	if _, isIndex := gitindex.WorkTreeOf(p); isIndex && content != nil {
		if x, err := gitindex.Read(io.NewSectionReader(content, 0, st.Size)); err == nil {
			if u.indexes == nil {
				u.indexes = map[vpath.Path][]byte{}
			}
			of := x.Sum()
			u.indexes[p] = of[:]
		}
	}
	u.AddEntry(p, UploadedEntry{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, Nlink: uint32(st.Nlink),
		Mtime: unix.Timespec(st.Mtim), Ctime: unix.Timespec(st.Ctim), SHA256: sum,
	})
	return nil
}

// UploadedEntry describes an uploaded entry.
type UploadedEntry = layer.Base

// AddEntry adds an entry. It ignores a sum that is not a SHA-256 of a content of at most
// layer.ContentMax bytes.
func (u *Uploaded) AddEntry(p vpath.Path, e UploadedEntry) {
	if len(e.SHA256) != sha256.Size || e.Size > layer.ContentMax {
		e.SHA256 = nil
	}
	if u.entries == nil {
		u.entries = map[vpath.Path]layer.Base{}
	}
	u.entries[p] = e
}

// Upload is the stored description of the uploaded directory of a server's sandbox.
type Upload struct {
	Sandbox  *Sandbox
	manifest uploadManifest
}

// uploadManifest is the format of manifestFile.
type uploadManifest struct {
	SchemaVersion int    `json:"schema_version"`
	ID            ID     `json:"id"` // the server's sandbox's
	CodebaseID    string `json:"codebase_id"`
	// Entries are by escaped path.
	Entries map[string]layer.Base `json:"entries"`
	// Indexes are the sums of the git indexes among the entries, by escaped path. git may
	// write an index again without changing its meaning.
	Indexes map[string][]byte `json:"indexes,omitempty"`
}

// uploads opens the state directory of the uploads.
func (h *Home) uploads() (*Home, error) {
	u := &Home{dir: filepath.Join(h.dir, uploadsDir), audit: h.audit, outer: h.dir}
	for _, dir := range []string{u.dir, u.sandboxesDir(), u.auditDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, HostError("state directory", err)
		}
		if err := checkPrivate(dir); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// uploadName returns the name of the upload of a server's sandbox.
func uploadName(key ID) (string, error) {
	if !key.IsValid() {
		return "", errdefs.New(errdefs.Internal, "sandbox %q: not an id", key)
	}
	return strings.TrimPrefix(string(key), id.SandboxPrefix), nil
}

// RememberUpload stores that the directory source was uploaded to a codebase for a server's
// sandbox, with its rules.
func (h *Home) RememberUpload(id ID, codebaseID string, source Source, rules []policy.Rule, marks []policyfile.RiskFlag, files *Uploaded) error {
	home, err := h.uploads()
	if err != nil {
		return err
	}
	name, err := uploadName(id)
	if err != nil {
		return err
	}
	sb, err := home.Create(Record{
		Name: name, Source: source, Workspace: "/workspace", Rules: rules, Marks: marks, Runtime: RuntimeBwrap, Net: NetNone,
	})
	if err != nil {
		return err
	}
	u := Upload{Sandbox: sb, manifest: uploadManifest{
		SchemaVersion: SchemaVersion, ID: id, CodebaseID: codebaseID, Entries: make(map[string]layer.Base, len(files.entries)),
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

// Store writes the record of the upload durably.
func (u *Upload) Store() error {
	text, err := json.Marshal(u.manifest)
	if err == nil {
		err = safefs.WriteDurably(u.Sandbox.Dir(), manifestFile, text)
	}
	if err != nil {
		return HostError("what was uploaded", err)
	}
	return nil
}

// Upload returns the stored upload of a server's sandbox. Errors: NotFound if there is
// none; Precondition if it is damaged.
func (h *Home) Upload(id ID) (*Upload, error) {
	name, err := uploadName(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(filepath.Join(h.dir, uploadsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, noSandbox(string(id))
	}
	home, err := h.uploads()
	if err != nil {
		return nil, err
	}
	u := &Upload{}
	if u.Sandbox, err = home.Open(name); err != nil {
		return nil, err
	}
	path := filepath.Join(u.Sandbox.Dir(), manifestFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // killed before it wrote the manifest
		return nil, noSandbox(string(id))
	case err != nil:
		return nil, HostError("what was uploaded", err)
	}
	if err := json.Unmarshal(text, &u.manifest); err != nil {
		return nil, errdefs.New(errdefs.Precondition, "what was uploaded, %s: damaged: %w", path, err)
	}
	if m := u.manifest; m.SchemaVersion < 1 || m.SchemaVersion > SchemaVersion || m.ID != id {
		return nil, errdefs.New(errdefs.Precondition, "what was uploaded, %s: of sandbox %q and schema version %d, which this agentfense does not know", path, m.ID, m.SchemaVersion)
	}
	return u, nil
}

// FindUpload is Home.Upload in the user's state directory, which need not exist.
func FindUpload(getenv func(string) string, id ID) (*Upload, error) {
	dir, err := statedir.Path(getenv)
	if err != nil {
		return nil, noSandbox(string(id))
	}
	if _, err := os.Lstat(filepath.Join(dir, uploadsDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, noSandbox(string(id))
	}
	home, err := OpenHome(getenv)
	if err != nil {
		return nil, err
	}
	return home.Upload(id)
}

// Record returns the record of the upload.
func (u *Upload) Record() Record { return u.Sandbox.Record() }

// ForgetUpload removes the stored upload.
func (h *Home) ForgetUpload(id ID) error {
	u, err := h.Upload(id)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return u.Forget()
}

// Forget is Home.ForgetUpload.
func (u *Upload) Forget() error {
	if err := u.Sandbox.Home.Remove(u.Sandbox.Name()); err != nil {
		return err
	}
	return u.Sandbox.Home.forgetLog(u.Sandbox.ID())
}

// LockApply keeps other applies of the upload out until release is called. An apply stages
// what it fetched in the delta of the upload, which the next one empties. Errors:
// Precondition while another apply has the lock.
func (u *Upload) LockApply() (release func(), err error) {
	dir, err := os.Open(u.Sandbox.Dir())
	if err != nil {
		return nil, HostError("upload", err)
	}
	if err := Flock(dir, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		dir.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errdefs.New(errdefs.Precondition, "directory %s: another apply to it is running; try again after it", u.Source().Path)
		}
		return nil, HostError("upload", err)
	}
	return func() { dir.Close() }, nil
}

// Source returns the uploaded directory.
func (u *Upload) Source() Source { return u.Sandbox.Stored.Source }

// CodebaseID returns the codebase to which it was uploaded.
func (u *Upload) CodebaseID() string { return u.manifest.CodebaseID }

// SetRules replaces the rules of the sandbox.
func (u *Upload) SetRules(rules []policy.Rule) error {
	return u.Sandbox.Update(func(r *Record) error {
		r.SetRules(rules, "")
		return nil
	})
}

// Index returns the sum of the uploaded git index at p, or nil if it is unknown.
func (u *Upload) Index(p vpath.Path) []byte { return u.manifest.Indexes[p.String()] }

// SetIndex sets the sum of the git index at p; nil removes it.
func (u *Upload) SetIndex(p vpath.Path, sum []byte) {
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
func (u *Upload) Base(p vpath.Path) *layer.Base {
	b, was := u.manifest.Entries[p.String()]
	if !was {
		return nil
	}
	return &b
}

// SetBase sets the base of p; nil or an Absent base removes it.
func (u *Upload) SetBase(p vpath.Path, b *layer.Base) {
	if b == nil || b.Absent {
		delete(u.manifest.Entries, p.String())
		return
	}
	u.manifest.Entries[p.String()] = *b
}
