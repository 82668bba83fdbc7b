package codebase

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Ignores returns the patterns (gitignore(5)) of the files that a new sandbox of the codebase does
// not see: the default patterns, and those of the ignore files at the root of a directory that was
// linked with ignoreFiles; none for another codebase. Errors: Invalid for a malformed ignore file;
// Precondition if the path now has another directory; Denied.
func (c *Codebase) Ignores() ([]byte, error) {
	l, linked := c.Linked()
	if !linked || !l.IgnoreFiles {
		return nil, nil
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.ignores()
}

// ignores reads the patterns and checks them.
func (l Link) ignores() ([]byte, error) {
	var st unix.Stat_t
	dir, err := l.open(&st)
	if err != nil {
		return nil, linkError(l.Path, err)
	}
	defer unix.Close(dir)
	texts := []string{ignore.Defaults}
	for _, name := range ignore.Names {
		text, err := readPatterns(dir, name)
		if err != nil {
			return nil, errdefs.New(errdefs.Invalid, "link: %s: %w", name, err)
		}
		texts = append(texts, strings.TrimPrefix(text, "\ufeff")) // a byte order mark inside belongs to a pattern
	}
	all := strings.Join(texts, "\n")
	if _, err := ignore.New(all); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "link: %w", err)
	}
	return []byte(all), nil
}

// readPatterns reads an ignore file; "" if it does not exist. It must be a regular file, as for
// git.
func readPatterns(dir int, name string) (string, error) {
	text, err := safefs.ReadRegular(dir, name, ignore.MaxBytes)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return string(text), err
}
