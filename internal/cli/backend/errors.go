package backend

import (
	"fmt"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/review"
)

// LocalOnlyError says that a server cannot do what a flag asks for, or with Flag "" the verb. Its
// kind is Unsupported.
type LocalOnlyError struct{ Flag string }

// Error says so.
func (e *LocalOnlyError) Error() string {
	if e.Flag == "" {
		return "works only on this host, not on a server"
	}
	return "--" + e.Flag + ": works only on this host, not on a server"
}

// Unwrap is the error's kind.
func (e *LocalOnlyError) Unwrap() error { return errLocalOnly }

var errLocalOnly = errdefs.New(errdefs.Unsupported, "not on a server")

// ServerOnlyError says that a flag needs a server. Its kind is Unsupported.
type ServerOnlyError struct{ Flag, Value string }

// Error says so.
func (e *ServerOnlyError) Error() string {
	return fmt.Sprintf("--%s %s: needs --endpoint", e.Flag, vpath.Quote(e.Value))
}

// Unwrap is the error's kind.
func (e *ServerOnlyError) Unwrap() error { return errServerOnly }

var errServerOnly = errdefs.New(errdefs.Unsupported, "needs a server")

// DoneError says that another process has done the rest of the work, and said what
// there is to say. That process was needed because files of the delta are closed to
// their owner.
type DoneError struct{ Code int }

// Error says so.
func (e *DoneError) Error() string {
	return fmt.Sprintf("done by another process: exit code %d", e.Code)
}

// RefusePending refuses to remove a sandbox with changes that were not applied, or commits.
// Errors: Precondition.
func RefusePending(name string, p review.Pending) error {
	which := name
	if p.InMounts > 0 {
		which += " --all"
	}
	switch {
	case p.Changes == 0 && p.Branches == 0:
		return nil
	case p.Changes == 0:
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: its clean repository has commits that are nowhere else; look: agentfense commits %[1]s · keep: agentfense apply %[1]s --commits [--to-branch BRANCH] · remove it with them: agentfense rm --force %[1]s", name)
	case p.Changes == p.LeftOut:
		return errdefs.New(errdefs.Precondition, "sandbox %[1]s: %[2]s that apply never takes; look: agentfense diff %[3]s · remove it with them: agentfense rm --force %[1]s", name, countChanges(p.LeftOut), which)
	}
	return errdefs.New(errdefs.Precondition, "sandbox %[1]s: %[2]s not applied; look: agentfense diff %[3]s · keep: agentfense apply %[3]s · drop: agentfense discard %[3]s, or remove it with them: agentfense rm --force %[1]s", name, countChanges(p.Changes), which)
}

func countChanges(n int) string {
	if n == 1 {
		return "1 change"
	}
	return fmt.Sprintf("%d changes", n)
}

// StopFirst says how a sandbox that runs can be removed.
func StopFirst(name string) string {
	return fmt.Sprintf("stop it first: agentfense stop %[1]s, or remove it with what was not applied: agentfense rm --force %[1]s", vpath.Escape(name))
}
