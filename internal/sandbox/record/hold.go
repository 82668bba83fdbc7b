package record

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// heldFile is a file in a sandbox's directory that exists while its sync is held.
const heldFile = "sync-held"

// HoldSync records, durably, that until ReleaseSync a server copies the sandbox's changes
// to its codebase only by an apply.
func (s *Sandbox) HoldSync() error {
	held, err := s.IsSyncHeld()
	if held || err != nil {
		return err
	}
	if err := safefs.WriteDurably(s.Dir(), heldFile, nil); err != nil {
		return HostError("sandbox "+s.Name(), err)
	}
	return nil
}

// HoldSyncIn is HoldSync of a sandbox that is being made in a directory, for Home.CreateWith.
func HoldSyncIn(dir string) error { return safefs.WriteUnnamed(dir, heldFile, nil) }

// IsSyncHeld reports whether the sync is held.
func (s *Sandbox) IsSyncHeld() (bool, error) {
	_, err := os.Lstat(filepath.Join(s.Dir(), heldFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return true, HostError("sandbox "+s.Name(), err)
	}
	return true, nil
}

// ReleaseSync ends HoldSync.
func (s *Sandbox) ReleaseSync() error {
	if err := safefs.IgnoreAbsent(os.Remove(filepath.Join(s.Dir(), heldFile))); err != nil {
		return HostError("sandbox "+s.Name(), err)
	}
	return nil
}
