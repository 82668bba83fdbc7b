package cli

import (
	"github.com/agentfense/agentfense/internal/cli/backend"
)

// sayHeld says that what a command changed waits in the sandbox.
func (e *env) sayHeld(name string, exit backend.Exit) {
	if exit.SyncHeld {
		e.say("the changes stay in the sandbox, because a token without the scope apply ran a command in it; to apply them with a token that has the scope: agentfense apply %s", name)
	}
}
