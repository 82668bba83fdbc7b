package codebase

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/transfer/ignore"
)

// Ignores returns the patterns, as of gitignore(5), of what a new sandbox does
// not see of a directory that was linked so: the defaults, and those of the files
// at its root. They are empty for any other codebase. Errors: Invalid for files
// that hold no patterns; Precondition, if another directory stands there now;
// Denied.
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
		texts = append(texts, strings.TrimPrefix(text, "\ufeff")) // a mark inside would be a pattern's
	}
	all := strings.Join(texts, "\n")
	if _, err := ignore.New(all); err != nil {
		return nil, errdefs.New(errdefs.Invalid, "link: %w", err)
	}
	return []byte(all), nil
}

// readPatterns reads a file of patterns; "" if there is none. Only a regular file
// will do, as with git.
func readPatterns(dir int, name string) (string, error) {
	text, err := safefs.ReadRegular(dir, name, ignore.MaxBytes)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return string(text), err
}
