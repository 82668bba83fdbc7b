package backend

import "github.com/agentfense/agentfense/internal/sandbox/apply"

// Kept is what the end of a command did in the workspace or in a mount, by rules with
// apply: keep.
type Kept struct {
	Mount string // "" for the workspace
	apply.Keeping
	// Busy says that nothing was looked at, because other commands run.
	Busy bool
}
