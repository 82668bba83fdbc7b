package cli

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// checkVariables refuses what --env cannot mean.
func checkVariables(extra []string) error {
	for _, v := range extra {
		if name, _, _ := strings.Cut(v, "="); name == "" {
			return errdefs.New(errdefs.Invalid, "--env %q: want NAME or NAME=VALUE", v)
		}
	}
	return nil
}

// sayUnset tells of variables that are to be passed on and are not set.
func (e *env) sayUnset(extra []string) {
	for _, name := range extra {
		if !strings.Contains(name, "=") && e.getenv(name) == "" {
			e.say("--env %s: not set, so not passed on", vpath.Quote(name))
		}
	}
}
