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

// DefaultToken returns the token of the file path, and makes both, with mode
// 0600, if the file is absent. Servers that start at once get one token.
// Errors: as ReadToken, and as the file system has it.
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

// makeTokenFile writes a new token beside path and then links it there: nobody
// reads half a token, and a file that came meanwhile stays.
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

// ReadToken returns the token of the file path. Errors: NotFound if the file is
// absent; Denied if it cannot be read; Precondition if it could be read, or have
// been written, by others, or holds no token.
func ReadToken(path string) (string, error) {
	// Without O_NONBLOCK opening a FIFO would wait for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", errdefs.New(safefs.Kind(err), "token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errdefs.New(errdefs.Precondition, "not a file")
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
		return "", errdefs.New(errdefs.Precondition, "token file %s: holds no token (%s and %d hex digits); without the file the server makes a new one", path, tokenPrefix, 2*secretBytes)
	}
	return token, nil
}
