package cli

import (
	"errors"

	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// errStays keeps a sandbox from being removed.
var errStays = errors.New("the sandbox has changes")

// leaveNothing removes an unnamed sandbox in which nothing was changed. Its audit log
// stays, as with rm. One whose changes were applied, or whose home is kept, stays, too, and is
// named.
func (e *env) leaveNothing(home *record.Home, sb *record.Sandbox, applied bool) error {
	if applied || sb.Record().Home == record.HomeKeep {
		e.say("sandbox %[1]s stays: agentfense rm %[1]s", sb.Name())
		return nil
	}
	denied := false
	err := home.RemoveIf(sb.Name(), func(*record.Sandbox) error {
		if closed, err := sb.IsClosed(); closed || err != nil {
			return errors.Join(errStays, err)
		}
		if changed, err := review.HasChanges(sb); changed || err != nil {
			return errors.Join(errStays, err)
		}
		var err error
		denied, err = wasRefused(sb.AuditPath())
		return err
	})
	if errors.Is(err, errStays) {
		return nil // the summary has named it
	}
	if held := (*record.HeldError)(nil); errors.As(err, &held) { // somebody else uses it
		e.say("sandbox %[1]s stays: agentfense exec %[1]s -- COMMAND · agentfense rm %[1]s", sb.Name())
		return nil
	}
	if err == nil && denied {
		e.say("nothing was changed, so no sandbox stays; what was denied: agentfense audit %s", sb.ID())
	}
	return err
}

// wasRefused reports whether the log at path tells of a refusal.
func wasRefused(path string) (refused bool, err error) {
	err = audit.Read(path, func(r audit.Record) error {
		_, is := r.Event.(audit.PermissionDenied)
		refused = refused || is
		return nil
	})
	return refused, err
}
