package sandbox

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/hostfile"
)

// What was shown last of sandboxes of servers: a file of this directory of the
// home for each of the last maxShown, which holds the digest.
const (
	shownDir = "shown"
	maxShown = 256
)

// ShownOf returns the digest of what was shown last of a server's sandbox, "" if
// that is what its last command left.
func (h *Home) ShownOf(id ID) (string, error) {
	if !id.IsValid() {
		return "", fault.New(fault.Internal, "sandbox %q: not an id", id)
	}
	text, err := os.ReadFile(filepath.Join(h.dir, shownDir, string(id)))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	case err != nil:
		return "", hostError("what was shown", err)
	case !IsDigest(string(text)):
		return "", fault.New(fault.Precondition, "what was shown of %s: the note is damaged: run agentfense diff again", id)
	}
	return string(text), nil
}

// SetShownOf notes what ShownOf returns.
func (h *Home) SetShownOf(id ID, digest string) error {
	if !id.IsValid() {
		return fault.New(fault.Internal, "sandbox %q: not an id", id)
	}
	dir := filepath.Join(h.dir, shownDir)
	return h.locked(func() error {
		if digest == "" {
			err := hostfile.IgnoreAbsent(os.Remove(filepath.Join(dir, string(id))))
			if err != nil {
				return hostError("what was shown", err)
			}
			return nil
		}
		err := os.Mkdir(dir, 0o700)
		if err == nil || errors.Is(err, os.ErrExist) {
			err = hostfile.WriteDurably(dir, string(id), []byte(digest))
		}
		if err == nil {
			err = forgetOldest(dir)
		}
		if err != nil {
			return hostError("what was shown", err)
		}
		return nil
	})
}

// forgetOldest removes what is beyond maxShown.
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
		err = errors.Join(err, hostfile.IgnoreAbsent(os.Remove(filepath.Join(dir, e.Name()))))
	}
	return err
}
