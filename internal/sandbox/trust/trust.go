// Package trust stores which policy files of projects the user trusts, each with its content. It
// promises that a file with another content is not trusted. Asking the user is left to others.
package trust

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// version is the version of the trust store's format.
const version = 1

// file has the project policy files that the user trusts.
const file = "trust.json"

// store maps the escaped path of a policy file to the SHA-256 of the trusted content.
type store struct {
	SchemaVersion int               `json:"schema_version"`
	Files         map[string]string `json:"files"`
}

// Has reports whether the user of h trusts the policy file at path with exactly this
// content. Errors: Precondition if the trust store is damaged.
func Has(h *record.Home, path string, content []byte) (bool, error) {
	t, err := read(h)
	if err != nil {
		return false, err
	}
	return t.Files[record.HostPath(path).String()] == digest(content), nil
}

// Add records that the user of h trusts the policy file at path with this content. It replaces
// an earlier content of the path. The path is absolute, without symbolic links.
func Add(h *record.Home, path string, content []byte) error {
	return h.Locked(func() error {
		t, err := read(h)
		if err != nil {
			return err
		}
		t.Files[record.HostPath(path).String()] = digest(content)
		text, err := json.MarshalIndent(t, "", "  ")
		if err != nil {
			return errdefs.New(errdefs.Internal, "trust store: %w", err)
		}
		if err := safefs.WriteDurably(h.Dir(), file, append(text, '\n')); err != nil {
			return record.HostError("trust store", err)
		}
		return nil
	})
}

func read(h *record.Home) (store, error) {
	t := store{SchemaVersion: version, Files: map[string]string{}}
	path := filepath.Join(h.Dir(), file)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, record.HostError("trust store", err)
	}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, errdefs.New(errdefs.Precondition, "trust store %s: damaged: %w", path, err)
	}
	if t.SchemaVersion != version || t.Files == nil {
		return t, errdefs.New(errdefs.Precondition, "trust store %s: has schema version %d, this agentfense knows %d", path, t.SchemaVersion, version)
	}
	return t, nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
