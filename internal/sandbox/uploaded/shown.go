package uploaded

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// lastShownFile is the file with the last shown changes of an upload's sandbox.
const lastShownFile = "shown.json"

// shownFile is the form of lastShownFile.
type shownFile struct {
	SchemaVersion int             `json:"schema_version"`
	Digest        string          `json:"digest"`  // the server's
	Entries       string          `json:"entries"` // the digest of changes
	Changes       json.RawMessage `json:"changes"`
}

// SetShown stores the last shown changes, with the server's digest of them.
func (u *Directory) SetShown(digest string, shown manifest.Manifest) error {
	changes, err := shown.Encode()
	if err != nil {
		return errdefs.New(errdefs.Internal, "what was shown: %w", err)
	}
	text, err := json.Marshal(shownFile{SchemaVersion: record.SchemaVersion, Digest: digest, Entries: shown.Digest(), Changes: changes})
	if err == nil {
		err = safefs.WriteDurably(u.Sandbox.Dir(), lastShownFile, text)
	}
	if err != nil {
		return record.HostError("what was shown", err)
	}
	return nil
}

// LastShown returns the last shown changes if they have this digest. Errors: NotFound if they do
// not; Precondition if the file is damaged.
func (u *Directory) LastShown(digest string) (manifest.Manifest, error) {
	path := filepath.Join(u.Sandbox.Dir(), lastShownFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, record.HostError("what was shown", err)
	}
	var f shownFile
	if err == nil {
		if err := json.Unmarshal(text, &f); err != nil {
			return nil, errdefs.New(errdefs.Precondition, "what was shown, %s: damaged: run agentfense diff again", record.HostPath(path))
		}
	}
	if f.Digest != digest {
		return nil, errdefs.New(errdefs.NotFound, "review %s: not the last one shown on this host: run agentfense diff again", digest)
	}
	return manifest.Decode(f.Changes, f.Entries)
}
