package backend

import "github.com/agentfense/agentfense/internal/sandbox/keep"

// Kept is what the end of a command did in the workspace or in a mount, by rules with
// apply: keep.
type Kept struct {
	Mount string // "" for the workspace
	keep.Result
	// Busy says that nothing was looked at, because other commands run.
	Busy bool
	// Note is why a server did not try, or not everything.
	Note string
}
