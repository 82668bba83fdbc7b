package service

import (
	"slices"

	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// withoutRules returns the effects for a caller who may not know the policy: what was refused, but
// not by which pattern, nor whose lock it was.
func withoutRules(e api.Effects) api.Effects {
	e.Denied = slices.Clone(e.Denied)
	for i := range e.Denied {
		e.Denied[i].Rule, e.Denied[i].Lock = "", ""
	}
	return e
}
