package remote

import (
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
)

// A server keeps what it has shown by digest, and does not remember which was last, for
// whom. This host does, in its state directory.

// lastShown returns what was shown last of a sandbox. What was uploaded is its workspace alone.
func (b *Backend) lastShown(sb backend.Sandbox) (last backend.Reviewed, err error) {
	home, err := b.openHome()
	if err != nil {
		return last, err
	}
	if last.Digest, err = shownOf(home, sb.Record.ID, sb.Mount); err != nil || last.Digest == "" {
		return last, err
	}
	u, err := b.uploadOf(sb)
	if err == nil && u != nil {
		shown, readErr := u.LastShown(last.Digest)
		if readErr != nil {
			return last, readErr
		}
		last.Shown = apply.NewShown(shown)
	}
	return last, err
}

// noteShown notes what lastShown returns.
func (b *Backend) noteShown(sb backend.Sandbox, last backend.Reviewed) error {
	home, err := b.openHome()
	if err != nil {
		return err
	}
	u, err := b.uploadOf(sb)
	if err == nil && u != nil && last.Shown != nil {
		err = u.SetShown(last.Digest, last.Shown.Manifest())
	}
	if err != nil {
		return err
	}
	return setShownOf(home, sb.Record.ID, sb.Mount, last.Digest)
}
