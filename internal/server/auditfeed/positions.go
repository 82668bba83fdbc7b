package auditfeed

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// position is how far a log was sent.
type position struct {
	Seq    uint64 `json:"seq"`            // of the last record
	Offset int64  `json:"offset"`         // where it ends in the file, in bytes
	Over   bool   `json:"over,omitempty"` // nothing more of it is to be sent
}

// positionsVersion is the version of the file's format.
const positionsVersion = 1

type positionsFile struct {
	SchemaVersion int                 `json:"schema_version"`
	Logs          map[string]position `json:"logs"`
}

func readPositions(path string) (map[string]position, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]position{}, nil
	}
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%s: %w", filepath.Base(path), err)
	}
	var p positionsFile
	if err := json.Unmarshal(text, &p); err != nil || p.SchemaVersion != positionsVersion || p.Logs == nil {
		return nil, errdefs.New(errdefs.Precondition, "%s: damaged or of a newer agentfense: remove it, and all audit logs are sent again", path)
	}
	return p.Logs, nil
}

func writePositions(path string, at map[string]position) error {
	text, err := json.Marshal(positionsFile{positionsVersion, at})
	if err != nil {
		return errdefs.New(errdefs.Internal, "%s: %w", filepath.Base(path), err)
	}
	if err := safefs.WriteDurably(filepath.Dir(path), filepath.Base(path), append(text, '\n')); err != nil {
		return errdefs.New(safefs.Kind(err), "%s: %w", filepath.Base(path), err)
	}
	return nil
}
