package cli

import (
	"context"
	"errors"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// finishOnServer does what follows a command, as finishRun.
func (e *env) finishOnServer(ctx context.Context, s backend.Server, m *made, o runOptions, exit backend.Exit, before uint64) error {
	e.sayConflicts(exit)
	e.sayHeld(m.Record.Name, exit)
	var after error
	applied := 0
	if o.Apply && exit.Code == exitOK {
		applied, after = e.applyAllOnServer(ctx, s, m)
	}
	toGo := o.Remove && after == nil // what could not be applied stays
	sum, err := e.summariseOnServer(ctx, s, m, before, toGo)
	after = errors.Join(after, err)
	switch {
	case toGo:
		after = errors.Join(after, e.destroyOnServer(context.WithoutCancel(ctx), s, m.Sandbox))
	case m.isNew && o.Name == "" && after == nil && len(sum.Files) == 0:
		after = e.leaveNothingOnServer(ctx, s, m, applied > 0, sum.Refused)
	}
	if after == nil && exit.Code != exitOK {
		return exitError(exit.Code)
	}
	return after
}

// leaveNothingOnServer is leaveNothing of a server's sandbox, in which nothing waits
// to be applied.
func (e *env) leaveNothingOnServer(ctx context.Context, s backend.Server, m *made, applied bool, refused []policy.Refused) error {
	name := m.Record.Name
	if applied || m.Record.Home == record.HomeKeep {
		e.say("sandbox %[1]s stays: agentfense rm %[1]s", name)
		return nil
	}
	if err := e.saySynced(ctx, s, m.Sandbox); err != nil {
		return err
	}
	err := m.undo(ctx, s)
	if errdefs.Is(err, errdefs.Precondition) { // somebody else uses it, or has changed something
		e.say("sandbox %[1]s stays: agentfense exec %[1]s -- COMMAND · agentfense rm %[1]s", name)
		return nil
	}
	if err == nil && len(refused) > 0 {
		e.say("nothing was changed, so no sandbox stays; its log stays on the server, as that of %s", m.id())
	}
	return err
}

// summariseOnServer is printSummary of a server's sandbox.
func (e *env) summariseOnServer(ctx context.Context, s backend.Server, m *made, before uint64, toGo bool) (sum present.Summary, err error) {
	r, err := s.Review(ctx, m.Sandbox, nil, true, "")
	if err != nil {
		return sum, err
	}
	sum = present.Summary{Files: r.Files(), Groups: r.Groups()}
	err = sum.AddDenials(func(do func(audit.Record) error) error {
		return s.Audit(ctx, m.id(), before, false, do)
	})
	if err != nil {
		return sum, err
	}
	now, err := s.Sandbox(ctx, m.Record.Name)
	if err != nil {
		return sum, err
	}
	helping := advice(sum.Refused, now.Record.Rules, nil, isDirOfCodebase(ctx, s, m.Record.Served.CodebaseID), again)
	e.saySummary(m.Record.Name, sum, helping, toGo)
	if toGo {
		return sum, nil
	}
	if now.Status != record.Running {
		err = e.noteShown(m.Sandbox, backend.Reviewed{}) // the summary lists what is there
	}
	return sum, err
}
