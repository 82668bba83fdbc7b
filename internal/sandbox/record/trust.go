package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// trustVersion is the version of the trust store's format.
const trustVersion = 1

// trustFile has the project policy files that the user trusts.
const trustFile = "trust.json"

// trust maps the escaped path of a policy file to the SHA-256 of the trusted content.
type trust struct {
	SchemaVersion int               `json:"schema_version"`
	Files         map[string]string `json:"files"`
}

// IsTrusted reports whether the user trusts the policy file at path with exactly this
// content. Errors: Precondition if the trust store is damaged.
func (h *Home) IsTrusted(path string, content []byte) (bool, error) {
	t, err := h.readTrust()
	if err != nil {
		return false, err
	}
	return t.Files[HostPath(path).String()] == digest(content), nil
}

// Trust records that the user trusts the policy file at path with this content. It replaces
// an earlier content of the path. The path is absolute, without symbolic links.
func (h *Home) Trust(path string, content []byte) error {
	return h.locked(func() error {
		t, err := h.readTrust()
		if err != nil {
			return err
		}
		t.Files[HostPath(path).String()] = digest(content)
		text, err := json.MarshalIndent(t, "", "  ")
		if err != nil {
			return errdefs.New(errdefs.Internal, "trust store: %w", err)
		}
		if err := safefs.WriteDurably(h.dir, trustFile, append(text, '\n')); err != nil {
			return HostError("trust store", err)
		}
		return nil
	})
}

func (h *Home) readTrust() (trust, error) {
	t := trust{SchemaVersion: trustVersion, Files: map[string]string{}}
	path := filepath.Join(h.dir, trustFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, HostError("trust store", err)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, errdefs.New(errdefs.Precondition, "trust store %s: damaged: %w", path, err)
	}
	if t.SchemaVersion != trustVersion || t.Files == nil {
		return t, errdefs.New(errdefs.Precondition, "trust store %s: has schema version %d, this agentfense knows %d", path, t.SchemaVersion, trustVersion)
	}
	return t, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
