package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// A server without tokens trusts every client at its loopback address, and a command on the
// host's network could connect to it. So the two must not run at the same time: each first
// takes its own lock and then checks the other's.

// Tokenless records that a server of this state directory requires no token, until release
// or the end of the process. Errors: Precondition while a sandbox on the host's network
// runs, or a second such server.
func (h *Home) Tokenless() (release func(), err error) {
	f, err := os.OpenFile(h.tokenlessPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, HostError("state directory", err)
	}
	release = func() { f.Close() }
	if err := Flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		release()
		return nil, errdefs.New(errdefs.Precondition, "another server of %s requires no token", h.dir)
	}
	if err := h.checkNoHostNetwork(); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func (h *Home) checkNoHostNetwork() error {
	boxes, err := h.List()
	if err != nil {
		return err
	}
	for _, b := range boxes {
		if b.Stored.Net != NetHost {
			continue
		}
		owner, held, err := b.Holder()
		if err != nil {
			return err
		}
		if held && owner.Purpose != PurposeApply && owner.Purpose != PurposeDiscard && owner.Purpose != PurposeRemove {
			return errdefs.New(errdefs.Precondition, "sandbox %s runs on the host's network and could use a server that requires no token: "+
				"stop it (agentfense stop %s), or serve with tokens", b.Stored.Name, b.Stored.Name)
		}
	}
	return nil
}

// CheckNetwork refuses to run a sandbox on the host's network while a server requires no
// token. The caller holds the sandbox's lock. Errors: Precondition.
func (s *Sandbox) CheckNetwork() error {
	if s.Stored.Net != NetHost {
		return nil
	}
	f, err := os.Open(s.Home.tokenlessPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return HostError("state directory", err)
	}
	defer f.Close()
	held, err := isLocked(f)
	if err != nil {
		return HostError("state directory", err)
	}
	if held {
		return errdefs.New(errdefs.Precondition, "a server of this state directory requires no token (--no-auth), "+
			"and a command on the host's network could use it: serve with tokens, or run without --net host")
	}
	return nil
}

func (h *Home) tokenlessPath() string { return filepath.Join(h.dir, "tokenless.lock") }
