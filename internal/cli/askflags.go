package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// askTimeout is how long an answer may take by default.
const askTimeout = time.Minute

// askOptions are the flags that make refusals wait for an answer.
type askOptions struct {
	Ask     bool
	Timeout time.Duration
	Hook    string
}

// askFlags are those whose presence at a resume replaces the stored setting.
var askFlags = []string{"ask", "ask-timeout", "ask-hook"}

func (o *askOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Ask, "ask", false, "ask before an open or a change of a listed file, or a host name, is refused: on this terminal, or by agentfense policy ask")
	f.DurationVar(&o.Timeout, "ask-timeout", askTimeout, "refuse if no answer comes in this time; implies --ask")
	f.StringVar(&o.Hook, "ask-hook", "", "let the shell command `COMMAND` answer: it gets JSON on its stdin, and prints allow, allow sandbox, allow project or deny; implies --ask")
}

func (o *askOptions) check() error {
	if o.Timeout < time.Second || o.Timeout > time.Hour {
		return errdefs.New(errdefs.Invalid, "--ask-timeout %s: want 1s to 1h", o.Timeout)
	}
	return nil
}

// record is what the record stores; nil if nothing is asked.
func (o *askOptions) record(cmd *cobra.Command) *record.Ask {
	if !o.Ask && (cmd.Flags().Changed("ask") || !changed(cmd, askFlags)) {
		return nil
	}
	return &record.Ask{Timeout: record.Duration(o.Timeout), Hook: o.Hook}
}
