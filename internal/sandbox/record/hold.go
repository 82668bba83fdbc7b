package record

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// heldFile stands in a sandbox's directory while its sync is held.
const heldFile = "sync-held"

// HoldSync notes, durably, that a server brings nothing of the sandbox's changes
// into its codebase until ReleaseSync, but by an apply.
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

// IsSyncHeld reports whether HoldSync holds.
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

// ReleaseSync ends what HoldSync began.
func (s *Sandbox) ReleaseSync() error {
	if err := safefs.IgnoreAbsent(os.Remove(filepath.Join(s.Dir(), heldFile))); err != nil {
		return HostError("sandbox "+s.Name(), err)
	}
	return nil
}
