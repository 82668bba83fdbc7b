package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// afterRunVerb is the hidden verb of what follows a command, run where files that are
// closed to their owner are open to us.
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
			return e.onHost(cmd, func(ctx context.Context, b backend.Backend) error {
				_, err := e.afterRun(ctx, b, args[0], seq, args[2] == "true", args[3] == "true")
				return err
			})
		},
	}
}

// afterRun applies, if the person asked for it, and says what was changed, and
// denied since the audit record afterSeq. toGo says that the sandbox is removed
// next, unless afterRun fails to apply. applied says that changes were applied.
func (e *env) afterRun(ctx context.Context, b backend.Backend, name string, afterSeq uint64, apply, toGo bool) (applied bool, err error) {
	again := []string{afterRunVerb, name, strconv.FormatUint(afterSeq, 10), strconv.FormatBool(apply), strconv.FormatBool(toGo)}
	c, err := b.Changes(ctx, name, "", again)
	if err != nil {
		return apply, doneElsewhere(err)
	}
	if apply {
		applied, err = e.applyAll(ctx, c)
		toGo = toGo && err == nil
	}
	mounts, mountErr := b.Pending(ctx, name)
	toGo = toGo && mountErr == nil && !(apply && holdsChanges(mounts))
	err = errors.Join(err, e.printSummary(ctx, b, c, afterSeq, toGo))
	r := c.Sandbox().Record
	e.sayMounts(&r, mounts, toGo)
	err = errors.Join(err, mountErr)
	if toGo {
		return applied, err
	}
	return applied, errors.Join(err, c.NoteAll(ctx)) // the summary lists what is there
}

// holdsChanges reports whether one of the mounts has a change that was not applied.
func holdsChanges(mounts []backend.MountChanges) bool {
	return slices.ContainsFunc(mounts, func(m backend.MountChanges) bool { return len(m.Files) > 0 })
}

// printSummary says after a run, on stderr, what the sandbox changed, what it
// was refused since the audit record afterSeq, and what to do now, or that the
// sandbox is to go with its changes. It says nothing where nothing happened.
func (e *env) printSummary(ctx context.Context, b backend.Backend, c backend.Changes, afterSeq uint64, toGo bool) error {
	p := e.progress("looking at what changed")
	defer p.stop()
	r, err := c.Review(ctx, nil, backend.Names)
	if err != nil {
		return err
	}
	defer r.Close()
	sb := c.Sandbox()
	s, err := present.Summarise(r.Review, func(do func(audit.Record) error) error {
		return b.Audit(ctx, sb.Ref(), afterSeq, false, do)
	})
	if err != nil {
		return err
	}
	now, err := b.Policy(ctx, sb.Ref())
	if err != nil {
		return err
	}
	p.stop()
	helping := advice(s.Refused, now.Record.Rules, now.Reserved, now.IsDir, again)
	helping = append(helping, mountAdvice(s.RefusedMounts, now.Record)...)
	e.saySummary(now.Record.Name, s, helping, toGo)
	return e.sayUnsaved(ctx, b, now.Record, toGo)
}

// lastSeq returns the number of the last record of a sandbox's log.
func lastSeq(ctx context.Context, b backend.Backend, sb backend.Sandbox) (uint64, error) {
	var last uint64
	err := b.Audit(ctx, sb.Ref(), 0, false, func(r audit.Record) error {
		last = max(last, r.Seq)
		return nil
	})
	return last, err
}

// leaveNothing removes an unnamed sandbox in which nothing was changed. Its audit log
// stays, as with rm. One of which changes were applied, or the home is kept, stays, too, and is
// named.
func (e *env) leaveNothing(ctx context.Context, b backend.Backend, sb backend.Sandbox, applied bool) error {
	name := sb.Record.Name
	if applied || sb.Record.Home == record.HomeKeep {
		e.say("sandbox %[1]s stays: agentfense rm %[1]s", name)
		return nil
	}
	left, err := b.RemoveUnused(ctx, sb)
	e.listSynced(sb, left.Synced)
	switch {
	case err != nil || left.HasChanges: // the summary has named it
	case left.InUse:
		e.say("sandbox %[1]s stays: agentfense exec %[1]s -- COMMAND · agentfense rm %[1]s", name)
	case left.Refused && left.LogHere:
		e.say("nothing was changed, so no sandbox stays; what was denied: agentfense audit %s", sb.Record.ID)
	case left.Refused:
		e.say("nothing was changed, so no sandbox stays; its log stays on the server, as that of %s", sb.Record.ID)
	}
	return err
}

// mountsHold reports whether a mount of the sandbox has changes, or nobody can tell.
func (e *env) mountsHold(ctx context.Context, b backend.Backend, sb backend.Sandbox) bool {
	mounts, err := b.Pending(ctx, sb.Ref())
	return err != nil || holdsChanges(mounts)
}

// finishRun does what follows a command: apply, the summary, removal. The exit code
// stays the command's, unless what the person asked for afterwards could not be done.
func (e *env) finishRun(ctx context.Context, b backend.Backend, sb backend.Sandbox, o runOptions, code int, before uint64) error {
	apply := o.Apply && code == exitOK
	applied, after := e.afterRun(ctx, b, sb.Ref(), before, apply, o.Remove)
	switch {
	case o.Remove && apply && after == nil && e.mountsHold(ctx, b, sb):
		e.say("sandbox %s stays: --apply applies the workspace alone", sb.Record.Name)
	case o.Remove && (after == nil || !apply): // what could not be applied stays
		p := e.progress("removing " + sb.Record.Name)
		_, err := b.Remove(context.WithoutCancel(ctx), sb.Ref(), backend.RemoveIdle)
		p.stop()
		after = errors.Join(after, err)
	case o.Name == "" && after == nil:
		after = e.leaveNothing(ctx, b, sb, applied)
	}
	if after == nil && code != exitOK {
		return exitError(code)
	}
	return after
}
