package auth

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// DefaultToken returns the token of the file path. If the file does not exist, it creates the file,
// with mode 0600, and a token. Servers that start concurrently get the same token. Errors: those of
// ReadToken and of the file system.
func DefaultToken(path string) (string, error) {
	token, err := ReadToken(path)
	if !errdefs.Is(err, errdefs.NotFound) {
		return token, err
	}
	if err := makeTokenFile(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", errdefs.New(safefs.Kind(err), "token file: %w", err)
	}
	return ReadToken(path)
}

// makeTokenFile writes a new token to a temporary file and links that to path, so that readers
// never see part of a token, and a file that another server created stays.
func makeTokenFile(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(newToken() + "\n")
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return safefs.SyncDir(filepath.Dir(path))
}

// ReadToken returns the token of the file path. Errors: NotFound if the file does not exist; Denied
// if it cannot be read; Precondition if others can read or write it, or if it contains no token.
func ReadToken(path string) (string, error) {
	// Without O_NONBLOCK, opening a FIFO would block.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", errdefs.New(safefs.Kind(err), "token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errdefs.New(errdefs.Precondition, "not a regular file")
	}
	if err == nil {
		err = safefs.CheckPrivate(f)
	}
	if err != nil {
		return "", errdefs.New(safefs.Kind(err), "token file %s: %w", path, err)
	}
	const most = 1 << 10
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return "", errdefs.New(safefs.Kind(err), "token file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if !isToken(token) {
		return "", errdefs.New(errdefs.Precondition, "token file %s: contains no token (want %s and %d hex digits): remove it, and the server creates a new one", path, tokenPrefix, 2*secretBytes)
	}
	return token, nil
}
