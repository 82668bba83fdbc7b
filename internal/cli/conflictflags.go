package cli

import (
	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

// conflictFlags are the names of the flags that decide conflicts.
var conflictFlags = []string{"ours", "theirs", "markers"}

// conflictOptions are these flags.
type conflictOptions struct{ Ours, Theirs, Markers bool }

// register adds the flags; the texts say what each of them does.
func (o *conflictOptions) register(cmd *cobra.Command, ours, theirs, markers string) {
	f := cmd.Flags()
	f.BoolVar(&o.Ours, "ours", false, ours)
	f.BoolVar(&o.Theirs, "theirs", false, theirs)
	f.BoolVar(&o.Markers, "markers", false, markers)
	cmd.MarkFlagsMutuallyExclusive(conflictFlags...)
}

// resolution is what the flags ask for.
func (o *conflictOptions) resolution() conflict.Resolution {
	switch {
	case o.Ours:
		return conflict.Ours
	case o.Theirs:
		return conflict.Theirs
	case o.Markers:
		return conflict.Markers
	}
	return conflict.Merge
}
