package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
)

// asOwner runs the command line args where everything in the delta is open to
// us, if something is closed here and we are not there already. done says that
// it has.
func (e *env) asOwner(ctx context.Context, sb *record.Sandbox, args []string) (done bool, err error) {
	if e.owner {
		return false, nil
	}
	closed, err := sb.IsClosed()
	if err != nil || !closed {
		return false, err
	}
	code, err := launch.RunAsOwner(ctx, args)
	if err == nil && code != exitOK {
		err = exitError(code)
	}
	return true, err
}

// afterRunVerb is the hidden verb of what follows a command.
const afterRunVerb = "__afterrun"

func newAfterRun(e *env) *cobra.Command {
	return &cobra.Command{
		Use:         afterRunVerb + " NAME SEQ APPLY TOGO",
		Hidden:      true,
		Args:        cobra.ExactArgs(4),
		Annotations: map[string]string{annotationInside: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil {
				return errdefs.New(errdefs.Invalid, "%s: %w", afterRunVerb, err)
			}
			_, sb, err := e.open(args[0])
			if err != nil {
				return err
			}
			return e.afterRun(cmd.Context(), sb, seq, args[2] == "true", args[3] == "true")
		},
	}
}

// afterRun applies, if the person asked for it, and says what was changed, and
// denied since the audit record afterSeq. toGo says that the sandbox is removed
// next, unless afterRun fails to apply.
func (e *env) afterRun(ctx context.Context, sb *record.Sandbox, afterSeq uint64, apply, toGo bool) error {
	args := []string{afterRunVerb, sb.Name(), strconv.FormatUint(afterSeq, 10), strconv.FormatBool(apply), strconv.FormatBool(toGo)}
	if done, err := e.asOwner(ctx, sb, args); done || err != nil {
		return err
	}
	var err error
	if apply {
		err = e.applyAll(ctx, sb)
		toGo = toGo && err == nil
	}
	err = errors.Join(err, e.printSummary(sb, afterSeq, toGo))
	if live, dialErr := client(ctx, sb); dialErr != nil || live != nil || toGo {
		return err
	}
	// Nothing runs: what the summary lists is what is there, and counts as shown.
	return errors.Join(err, manifest.SetLastShown(sb, ""))
}
