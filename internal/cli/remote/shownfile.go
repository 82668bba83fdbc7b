package remote

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// shownDir is the directory in the state directory with the digests that were last shown of
// servers' sandboxes. It has one file for each of the last maxShown sandboxes.
const (
	shownDir = "shown"
	maxShown = 256
)

// shownOf returns the digest that was last shown of a server's sandbox, in a mount or for "" in its
// workspace, or "" if none is stored.
func shownOf(home *record.Home, id record.ID, mount string) (string, error) {
	name, err := shownName(id, mount)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(home.Dir(), shownDir, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", record.HostError("what was shown", err)
	case !record.IsDigest(string(text)):
		return "", errdefs.New(errdefs.Precondition, "what was shown of %s: the file is damaged: run agentfense diff again", id)
	}
	return string(text), nil
}

// setShownOf stores the digest for shownOf.
func setShownOf(home *record.Home, id record.ID, mount, digest string) error {
	name, err := shownName(id, mount)
	if err != nil {
		return err
	}
	dir := filepath.Join(home.Dir(), shownDir)
	return home.Locked(func() error {
		if digest == "" {
			err := safefs.IgnoreAbsent(os.Remove(filepath.Join(dir, name)))
			if err != nil {
				return record.HostError("what was shown", err)
			}
			return nil
		}
		err := os.Mkdir(dir, 0o700)
		if err == nil || errors.Is(err, os.ErrExist) {
			err = safefs.WriteDurably(dir, name, []byte(digest))
		}
		if err == nil {
			err = forgetOldest(dir)
		}
		if err != nil {
			return record.HostError("what was shown", err)
		}
		return nil
	})
}

// shownName returns the name of the file with what was shown.
func shownName(id record.ID, mount string) (string, error) {
	switch {
	case !id.IsValid():
		return "", errdefs.New(errdefs.Internal, "sandbox %q: not an id", id)
	case mount == "":
		return string(id), nil
	}
	return string(id) + "." + mount, mountspec.CheckName(mount)
}

// forgetOldest removes the oldest files beyond maxShown.
func forgetOldest(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) <= maxShown {
		return err
	}
	at := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return cmp.Compare(at(b), at(a)) })
	for _, e := range entries[maxShown:] {
		err = errors.Join(err, safefs.IgnoreAbsent(os.Remove(filepath.Join(dir, e.Name()))))
	}
	return err
}
