package cli

import (
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/published"
)

// checkPublished refuses ports of --publish that are malformed, or that hosts take. Errors:
// Invalid, Precondition.
func (o *sandboxOptions) checkPublished(hosts []string) error {
	ports, err := published.Parse(o.Publish)
	if err == nil {
		err = (&published.Ports{Publish: ports}).CheckHosts(hosts)
	}
	if err != nil {
		return errdefs.New(errdefs.KindOf(err), "--publish %w", err)
	}
	return nil
}

// published are the ports that the flags ask for, which are checked elsewhere.
func (o *sandboxOptions) published() []published.Port {
	ports, _ := published.Parse(o.Publish) // checkPublished has the error
	return ports
}

// sayPublished says where the host shows ports of a sandbox.
func (e *env) sayPublished(sb backend.Sandbox) {
	for _, p := range sb.Record.Places() {
		e.say("published: %s", published.Text(p))
	}
}
