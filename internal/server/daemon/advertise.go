package daemon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// advertisedFile is the file in the state directory from which this user's programs learn the
// server's addresses (docs/server.md).
const advertisedFile = "server.json"

// advertisement is the content of advertisedFile.
type advertisement struct {
	SchemaVersion int    `json:"schema_version"`
	PID           int    `json:"pid"`
	GRPC          string `json:"grpc"` // host:port or unix:///path
	HTTP          string `json:"http"` // "": no REST
	TLS           bool   `json:"tls"`
	TokenFile     string `json:"token_file"`
}

// publish writes the file and keeps it locked while the server runs: if it is not locked, the
// server was killed. withdraw removes it.
func (w advertisement) publish(dir string) (withdraw func() error, err error) {
	w.SchemaVersion, w.PID = 1, os.Getpid()
	text, err := json.Marshal(w)
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "%s: %w", advertisedFile, err)
	}
	f, err := os.CreateTemp(dir, "."+advertisedFile+"-") // mode 0600
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "%s: %w", advertisedFile, err)
	}
	path := filepath.Join(dir, advertisedFile)
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(errdefs.New(errdefs.Precondition, "%s: %w", advertisedFile, err), os.Remove(f.Name()), f.Close())
	}
	return func() error {
		// Removed before the listeners close, so that no program finds an address that refuses it.
		return errors.Join(os.Remove(path), f.Close())
	}, nil
}
