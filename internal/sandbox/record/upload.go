package sandbox

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

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
	"github.com/agentfense/agentfense/internal/ident"
	"github.com/agentfense/agentfense/internal/layer"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// A directory that was uploaded for a sandbox of a server is remembered as a
// sandbox in a state directory of its own, uploadsDir of the home: with the
// directory as its source, the rules that were sent, and the manifest of what was
// uploaded beside its record. What the server sends of the changes becomes its
// delta, and Apply brings that into the directory.
const (
	uploadsDir   = "uploads"
	manifestFile = "uploaded.json"
)

// Uploaded lists the files of an upload as they were.
type Uploaded struct {
	entries map[vpath.Path]layer.Base
}

// Add adds an entry, which info describes. The content of a regular file is read
// from its beginning, where it is left. Errors: those of the host.
func (u *Uploaded) Add(p vpath.Path, info fs.FileInfo, target string, content *os.File) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fault.New(fault.Internal, "upload %s: not a file of this host", p)
	}
	base := layer.Base{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size, Mode: st.Mode, Nlink: uint32(st.Nlink),
		Mtime: unix.Timespec(st.Mtim), Ctime: unix.Timespec(st.Ctim),
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		sum := sha256.Sum256([]byte(target))
		base.SHA256 = sum[:]
	case content != nil && st.Size <= layer.ContentMax:
		h := sha256.New()
		_, err := io.Copy(h, io.NewSectionReader(content, 0, st.Size))
		if err != nil {
			return hostError("upload "+p.String(), err)
		}
		base.SHA256 = h.Sum(nil)
	}
	if u.entries == nil {
		u.entries = map[vpath.Path]layer.Base{}
	}
	u.entries[p] = base
	return nil
}

// Upload is what is remembered of the directory of a server's sandbox.
type Upload struct {
	sandbox  *Sandbox
	manifest uploadManifest
}

// uploadManifest is the form of manifestFile.
type uploadManifest struct {
	SchemaVersion int    `json:"schema_version"`
	ID            ID     `json:"id"` // the server's sandbox's
	CodebaseID    string `json:"codebase_id"`
	// Entries are by escaped path.
	Entries map[string]layer.Base `json:"entries"`
}

// uploads is the state directory of what was uploaded.
func (h *Home) uploads() (*Home, error) {
	u := &Home{dir: filepath.Join(h.dir, uploadsDir), audit: h.audit, outer: h.dir}
	for _, dir := range []string{u.dir, u.sandboxesDir(), u.auditDir()} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, hostError("state directory", err)
		}
		if err := checkPrivate(dir); err != nil {
			return nil, err
		}
	}
	return u, nil
}

// uploadName is what is remembered of a server's sandbox called by.
func uploadName(id ID) (string, error) {
	if !id.IsValid() {
		return "", fault.New(fault.Internal, "sandbox %q: not an id", id)
	}
	return strings.TrimPrefix(string(id), ident.SandboxPrefix), nil
}

// RememberUpload remembers that the directory source was uploaded into a codebase
// for a sandbox of a server, with its rules.
func (h *Home) RememberUpload(id ID, codebaseID string, source Source, rules []policy.Rule, marks []policy.Mark, files *Uploaded) error {
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
	u := Upload{sandbox: sb, manifest: uploadManifest{
		SchemaVersion: SchemaVersion, ID: id, CodebaseID: codebaseID, Entries: make(map[string]layer.Base, len(files.entries)),
	}}
	for p, base := range files.entries {
		u.manifest.Entries[p.String()] = base
	}
	if err := u.store(); err != nil {
		return errors.Join(err, home.Remove(name))
	}
	return nil
}

func (u *Upload) store() error {
	text, err := json.Marshal(u.manifest)
	if err == nil {
		err = hostfile.WriteDurably(u.sandbox.Dir(), manifestFile, text)
	}
	if err != nil {
		return hostError("what was uploaded", err)
	}
	return nil
}

// Upload returns what is remembered of the directory of a server's sandbox.
// Errors: NotFound if nothing is; Precondition if it is damaged.
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
	if u.sandbox, err = home.Open(name); err != nil {
		return nil, err
	}
	path := filepath.Join(u.sandbox.Dir(), manifestFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was killed before it had written it
		return nil, noSandbox(string(id))
	case err != nil:
		return nil, hostError("what was uploaded", err)
	}
	if err := json.Unmarshal(text, &u.manifest); err != nil {
		return nil, fault.New(fault.Precondition, "what was uploaded, %s: damaged: %w", path, err)
	}
	if m := u.manifest; m.SchemaVersion < 1 || m.SchemaVersion > SchemaVersion || m.ID != id {
		return nil, fault.New(fault.Precondition, "what was uploaded, %s: of sandbox %q and schema version %d, which are not known here", path, m.ID, m.SchemaVersion)
	}
	return u, nil
}

// Record describes the directory as a sandbox of this host would.
func (u *Upload) Record() Record { return u.sandbox.Record() }

// ForgetUpload forgets what RememberUpload remembers.
func (h *Home) ForgetUpload(id ID) error {
	u, err := h.Upload(id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := u.sandbox.home.Remove(u.sandbox.Name()); err != nil {
		return err
	}
	return u.sandbox.home.forgetLog(u.sandbox.ID())
}

// Source is the directory.
func (u *Upload) Source() Source { return u.sandbox.record.Source }

// CodebaseID is the codebase into which it was uploaded.
func (u *Upload) CodebaseID() string { return u.manifest.CodebaseID }

// SetRules makes rules those of the sandbox from now on.
func (u *Upload) SetRules(rules []policy.Rule) error {
	return u.sandbox.Update(func(r *Record) error {
		r.SetRules(rules, "")
		return nil
	})
}

// base is what was uploaded at p, nil for nothing.
func (u *Upload) base(p vpath.Path) *layer.Base {
	b, was := u.manifest.Entries[p.String()]
	if !was {
		return nil
	}
	return &b
}
