package cli

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/gitconfig"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// serverFlags are those of run and create that say what a server's sandbox is.
var serverFlags = []string{
	"codebase", "dir", "yes", "preset", "policy", "write", "read", "view", "hide",
	"runtime", "image", "net", "memory", "cpus", "pids", "disk",
}

// made is a server's sandbox that a verb has found or made.
type made struct {
	control.Sandbox
	isNew    bool
	codebase string        // that was uploaded for it, "" if none was
	home     *sandbox.Home // where the upload is remembered
}

func (m *made) id() string { return string(m.Record.ID) }

// undo removes what was made, for a command that was never started. What somebody
// else has changed meanwhile stays, with what it was made of.
func (m *made) undo(ctx context.Context, s control.Server) error {
	var err error
	if m.isNew && m.Record.ID != "" {
		err = s.DestroyUnused(context.WithoutCancel(ctx), m.id())
	}
	return errors.Join(err, m.forget(ctx, s, err))
}

// remove removes the sandbox with all that it changed, and what was uploaded for
// it.
func (m *made) remove(ctx context.Context, s control.Server) error {
	err := s.Destroy(context.WithoutCancel(ctx), m.id())
	return errors.Join(err, m.forget(ctx, s, err))
}

// forget deletes what was uploaded, and what is remembered of that, unless the
// sandbox stays because of err.
func (m *made) forget(ctx context.Context, s control.Server, err error) error {
	if err != nil {
		return nil
	}
	if m.home != nil && m.Record.ID != "" {
		err = m.home.ForgetUpload(m.Record.ID)
	}
	if m.codebase == "" {
		return err
	}
	return errors.Join(err, s.DeleteCodebase(context.WithoutCancel(ctx), m.codebase))
}

// createOnServer makes a sandbox of a codebase that is there, or of a directory
// that is uploaded.
func (o *sandboxOptions) createOnServer(ctx context.Context, e *env, s control.Server, cmd *cobra.Command) (*made, error) {
	if err := o.checkForServer(); err != nil {
		return nil, err
	}
	if o.Codebase == "" {
		if err := o.confirmBroad(e, o.directory()); err != nil {
			return nil, err
		}
	}
	rules, err := o.serverRules(ctx, e, s, o.Codebase)
	if err != nil {
		return nil, err
	}
	m := &made{isNew: true}
	if m.home, err = e.openHome(); err != nil {
		return nil, err
	}
	n := control.NewSandbox{Name: o.Name, CodebaseID: o.Codebase, Rules: rules, Image: o.Image, User: o.User, Limits: o.limits()}
	n.Git = gitconfig.Of(e.getenv, "/")
	n.Limits.Timeout = 0 // of each command, not of the sandbox
	if cmd.Flags().Changed("runtime") {
		n.Runtime = o.Runtime
	}
	var source sandbox.Source
	noted := &sandbox.Uploaded{}
	if o.Codebase == "" {
		if source, err = o.source(m.home); err != nil {
			return nil, err
		}
		pushed, err := e.push(ctx, s, string(source.Path), pushOptions{}, noted)
		if err != nil {
			return nil, err
		}
		m.codebase, n.CodebaseID, n.Sync = pushed.ID, pushed.ID, config.SyncManual
		n.Git = gitconfig.Of(e.getenv, string(source.Path))
	}
	m.Sandbox, err = s.Create(ctx, n)
	if err == nil && m.codebase != "" {
		err = m.home.RememberUpload(m.Record.ID, m.codebase, source, rules, o.marks, noted)
	}
	if err != nil {
		return nil, errors.Join(err, m.undo(ctx, s))
	}
	return m, nil
}

// checkForServer refuses what no sandbox of a server can have.
func (o *sandboxOptions) checkForServer() error {
	if err := o.check(); err != nil {
		return err
	}
	if o.Net != "none" {
		return fault.New(fault.Unsupported, "--net %s: works on this host alone, not on a server", o.Net)
	}
	if o.Name != "" {
		return sandbox.CheckName(o.Name)
	}
	return nil
}

// directory is the one that is meant.
func (o *sandboxOptions) directory() string {
	if o.Dir == "" {
		return "."
	}
	return o.Dir
}

// serverRules returns the policy of a server's sandbox: of a codebase, or of a
// directory here, whose .agentfense.yaml counts as it does for run.
func (o *sandboxOptions) serverRules(ctx context.Context, e *env, s control.Server, codebase string) (rules []policy.Rule, err error) {
	defer func() {
		if err == nil && len(o.marks) > 0 {
			e.say("the %s of the policy file: not known to a server, which has the built-in marks alone", plural(len(o.marks), "mark"))
		}
	}()
	if codebase == "" {
		source, err := realPath(o.directory())
		if err != nil {
			return nil, fault.New(fault.NotFound, "source: %w", err)
		}
		home, err := e.openHome()
		if err != nil {
			return nil, err
		}
		if rules, _, err = o.rules(e, home, source); err != nil {
			return nil, err
		}
		if err := e.sayRepository(source, rules, nil, true); err != nil {
			return nil, err
		}
		return rules, o.sayWarnings(e, rules)
	}
	if o.Policy == "" && o.Preset == "" {
		o.Preset = policy.DefaultPreset
	}
	base, _, err := o.baseRules(e, nil, "")
	if err != nil {
		return nil, err
	}
	extra, err := o.flagRules(e, isDirOfCodebase(ctx, s, codebase))
	if err != nil {
		return nil, err
	}
	rules = append(append(rules, base...), extra...)
	return rules, o.sayWarnings(e, rules)
}

// isDirOfCodebase tells whether a path is a directory of a codebase. What the
// server cannot say is none, as what is not there.
func isDirOfCodebase(ctx context.Context, s control.Server, codebase string) func(string) bool {
	return func(pattern string) bool {
		p, err := vpath.Parse(pattern)
		if err != nil || p.IsRoot() {
			return err == nil
		}
		files, err := s.Files(ctx, codebase, p.Dir(), false)
		if err != nil {
			return false
		}
		for _, f := range files {
			if f.Path == p {
				return f.Mode.IsDir()
			}
		}
		return false
	}
}

// findOnServer returns the sandbox that the flags of run name: a known one, with
// the policy that they give, or a new one.
func (o *runOptions) findOnServer(ctx context.Context, e *env, s control.Server, cmd *cobra.Command) (*made, error) {
	if o.Name == "" {
		return o.createOnServer(ctx, e, s, cmd)
	}
	known, err := s.Sandbox(ctx, o.Name)
	if fault.Is(err, fault.NotFound) {
		return o.createOnServer(ctx, e, s, cmd)
	}
	if err != nil {
		return nil, err
	}
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	m := &made{Sandbox: known, home: home}
	served := known.Record.Served
	switch {
	case o.Codebase != "" && o.Codebase != served.CodebaseID:
		return nil, fault.New(fault.Precondition, "sandbox %s: is one of codebase %s, not of %s", o.Name, served.CodebaseID, o.Codebase)
	case o.Dir != "":
		return nil, fault.New(fault.Precondition, "sandbox %s: is there, of codebase %s; to bring files there: agentfense codebase push %s --to %[2]s", o.Name, served.CodebaseID, sandbox.HostPath(o.Dir))
	case changed(cmd, []string{"runtime", "image", "memory", "cpus", "pids", "disk"}):
		return nil, fault.New(fault.Precondition, "sandbox %s: is there; a server's sandbox keeps the runtime and the limits that it was made with", o.Name)
	case o.Exclusive && known.Status == control.Running:
		return nil, fault.New(fault.Precondition, "sandbox %s: running already, and --exclusive was given", o.Name)
	}
	if !changed(cmd, policyFlags) {
		return m, nil
	}
	rules, err := o.serverRules(ctx, e, s, served.CodebaseID)
	if err != nil {
		return nil, err
	}
	return m, e.setServerPolicy(ctx, s, known, rules)
}

// runOnServer is run: what it makes stays, unless the server says that the command
// was never started.
func (e *env) runOnServer(ctx context.Context, s control.Server, cmd *cobra.Command, o runOptions, args []string) error {
	m, err := o.findOnServer(ctx, e, s, cmd)
	if err != nil {
		return err
	}
	var before uint64
	if !m.isNew {
		if before, err = lastSeqOnServer(ctx, s, m.id()); err != nil {
			return err
		}
	}
	leave, err := e.enterOnServer(ctx, s, m.Sandbox)
	if err != nil {
		return errors.Join(err, m.undo(ctx, s))
	}
	c := o.serverCommand(e, m.Sandbox, args)
	c.Timeout = o.Timeout
	var exit control.Exit
	if o.Detach {
		err = e.detachOnServer(ctx, s, m, c)
	} else {
		exit, err = e.attach(ctx, s, c)
		if leaveErr := leave(); err == nil {
			err = leaveErr
		}
	}
	if _, never := errors.AsType[*control.NotStartedError](err); never && m.isNew {
		return errors.Join(err, m.undo(ctx, s))
	}
	if err != nil {
		e.say("sandbox %[1]s stays, with what the command changed: see agentfense diff %[1]s", m.Record.Name)
	}
	if err != nil || o.Detach {
		return err
	}
	if err := e.explainOnServer(ctx, s, c, exit); err != nil {
		return err
	}
	return e.finishOnServer(ctx, s, m, o, exit, before)
}

// detachOnServer leaves the sandbox running, with the command in it if there is
// one.
func (e *env) detachOnServer(ctx context.Context, s control.Server, m *made, c control.Command) error {
	if len(c.Argv) > 0 {
		exit, err := s.Detach(ctx, c, e.stderr)
		if err == nil && exit.Code != exitOK {
			err = exitError(exit.Code)
		}
		if err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(e.stdout, m.Record.Name)
	return err
}

// finishOnServer does what follows a command, as finishRun.
func (e *env) finishOnServer(ctx context.Context, s control.Server, m *made, o runOptions, exit control.Exit, before uint64) error {
	e.sayConflicts(exit)
	e.sayHeld(m.Record.Name, exit)
	var after error
	if o.Apply && exit.Code == exitOK {
		after = e.applyAllOnServer(ctx, s, m)
	}
	toGo := o.Remove && after == nil // what could not be applied stays
	after = errors.Join(after, e.summariseOnServer(ctx, s, m, before, toGo))
	if toGo {
		after = errors.Join(after, m.remove(ctx, s))
	}
	if after == nil && exit.Code != exitOK {
		return exitError(exit.Code)
	}
	return after
}

// sayConflicts tells which changes met others in the codebase.
func (e *env) sayConflicts(exit control.Exit) {
	for _, text := range exit.Conflicts[:min(len(exit.Conflicts), summaryLines)] {
		e.say("conflict: %s was changed in the codebase meanwhile", vpath.Escape(path.Clean(vpath.DecodeText(text))))
	}
	if more := exit.ConflictCount - summaryLines; more > 0 {
		e.say("… and %d more conflicts; see the audit log", more)
	}
}

func lastSeqOnServer(ctx context.Context, s control.Server, id string) (uint64, error) {
	var last uint64
	err := s.Audit(ctx, id, 0, false, func(r audit.Record) error {
		last = max(last, r.Seq)
		return nil
	})
	return last, err
}

// summariseOnServer is printSummary of a server's sandbox.
func (e *env) summariseOnServer(ctx context.Context, s control.Server, m *made, before uint64, toGo bool) error {
	review, err := s.Review(ctx, m.Sandbox, nil, true, "")
	if err != nil {
		return err
	}
	sum := sandbox.Summary{Files: review.Files(), Groups: review.Groups()}
	err = sum.AddDenials(func(do func(audit.Record) error) error {
		return s.Audit(ctx, m.id(), before, false, do)
	})
	if err != nil {
		return err
	}
	now, err := s.Sandbox(ctx, m.Record.Name)
	if err != nil {
		return err
	}
	helping := advice(sum.Refused, now.Record.Rules, nil, isDirOfCodebase(ctx, s, m.Record.Served.CodebaseID))
	e.saySummary(m.Record.Name, sum, helping, toGo)
	if toGo {
		return nil
	}
	if now.Status != control.Running {
		err = e.noteShown(m.Sandbox, "") // the summary lists what is there
	}
	return err
}
