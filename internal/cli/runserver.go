package cli

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// serverFlags are those of run and create that say what a server's sandbox is.
var serverFlags = []string{
	"codebase", "dir", "yes", "preset", "policy", "write", "read", "view", "hide",
	"runtime", "image", "user", "net", "memory", "cpus", "pids", "disk", "home",
}

// made is a server's sandbox that a verb has found or made.
type made struct {
	backend.Sandbox
	isNew    bool
	codebase string       // that was uploaded for a new one, "" if none was
	home     *record.Home // where the upload of a new one is remembered
}

func (m *made) id() string { return string(m.Record.ID) }

// undo removes what was made, for a command that was never started. What was found
// stays, and what somebody else has changed meanwhile, with what it was made of.
func (m *made) undo(ctx context.Context, s backend.Server) error {
	if !m.isNew {
		return nil
	}
	var forgotten error
	if m.Record.ID != "" {
		if err := s.Raw().DestroyUnused(context.WithoutCancel(ctx), m.id()); err != nil {
			return err
		}
		forgotten = m.home.ForgetUpload(m.Record.ID)
	}
	if m.codebase == "" {
		return forgotten
	}
	return errors.Join(forgotten, deleteUpload(ctx, s, m.codebase))
}

// createOnServer makes a sandbox of a codebase that is there, or of a directory
// that is uploaded. All its commands have the variables env.
func (o *sandboxOptions) createOnServer(ctx context.Context, e *env, s backend.Server, cmd *cobra.Command, env map[string]string) (*made, error) {
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
	n := backend.NewSandbox{Name: o.Name, CodebaseID: o.Codebase, Rules: rules, Image: o.Image, User: o.User, Home: o.home(), Limits: o.limits(), Env: env}
	n.Git = gitconfig.Of(e.getenv, "/")
	n.Limits.Timeout = 0 // of each command, not of the sandbox
	if cmd.Flags().Changed("runtime") {
		n.Runtime = o.Runtime
	}
	var source record.Source
	noted := &record.Uploaded{}
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
	m.Sandbox, err = s.Raw().Create(ctx, n)
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
		return errdefs.New(errdefs.Unsupported, "--net %s: works only on this host, not on a server", o.Net)
	}
	if o.Name != "" {
		return record.CheckName(o.Name)
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
func (o *sandboxOptions) serverRules(ctx context.Context, e *env, s backend.Server, codebase string) (rules []policy.Rule, err error) {
	defer func() {
		if err == nil && len(o.marks) > 0 {
			e.say("the %s of the policy file: ignored; a server knows only the built-in marks", plural(len(o.marks), "mark"))
		}
	}()
	if codebase == "" {
		source, err := realPath(o.directory())
		if err != nil {
			return nil, errdefs.New(errdefs.NotFound, "source: %w", err)
		}
		home, err := e.openHome()
		if err != nil {
			return nil, err
		}
		if rules, _, err = o.rules(e, home, source, local.IsDirBelow(source)); err != nil {
			return nil, err
		}
		if err := e.sayRepository(source, rules, nil, true); err != nil {
			return nil, err
		}
		return rules, o.sayWarnings(e, rules)
	}
	if o.Policy == "" && o.Preset == "" {
		o.Preset = preset.Default
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
func isDirOfCodebase(ctx context.Context, s backend.Server, codebase string) func(string) bool {
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
func (o *runOptions) findOnServer(ctx context.Context, e *env, s backend.Server, cmd *cobra.Command) (*made, error) {
	if o.Name == "" {
		return o.createOnServer(ctx, e, s, cmd, given(o.Env))
	}
	known, err := s.Raw().Sandbox(ctx, o.Name)
	if errdefs.Is(err, errdefs.NotFound) {
		return o.createOnServer(ctx, e, s, cmd, given(o.Env))
	}
	if err != nil {
		return nil, err
	}
	m := &made{Sandbox: known}
	served := known.Record.Served
	switch {
	case o.Codebase != "" && o.Codebase != served.CodebaseID:
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: made from codebase %s, not %s", o.Name, served.CodebaseID, o.Codebase)
	case o.Dir != "":
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: exists already, with codebase %s; to upload files to it: agentfense codebase push %s --to %[2]s", o.Name, served.CodebaseID, record.HostPath(o.Dir))
	case changed(cmd, []string{"runtime", "image", "memory", "cpus", "pids", "disk"}):
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: exists already; the runtime and the limits of a server's sandbox cannot be changed", o.Name)
	case changed(cmd, []string{"home"}) && o.home() != known.Record.Home:
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: exists already; --home of a server's sandbox cannot be changed", o.Name)
	case o.Exclusive && known.Status == record.Running:
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: running already, and --exclusive was given", o.Name)
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
func (e *env) runOnServer(ctx context.Context, s backend.Server, cmd *cobra.Command, o runOptions, args []string) error {
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
	c, err := o.commandOnServer(e, m, args)
	if err != nil {
		return errors.Join(err, m.undo(ctx, s))
	}
	leave, err := e.enterOnServer(ctx, s, m.Sandbox)
	if err != nil {
		return errors.Join(err, m.undo(ctx, s))
	}
	var exit backend.Exit
	if o.Detach {
		err = e.detachOnServer(ctx, s, m, c)
	} else {
		exit, err = e.attach(ctx, s, c)
		if leaveErr := leave(); err == nil {
			err = leaveErr
		}
	}
	if _, never := errors.AsType[*backend.NotStartedError](err); never && m.isNew {
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
	e.sayMissingOnServer(m.Record, c, exit)
	e.sayConflicts(exit)
	e.sayHeld(m.Record.Name, exit)
	return e.finishRun(ctx, s, m.Sandbox, o, exit.Code, before)
}

// commandOnServer is the command of run, which the sandbox remembers the variables of.
func (o *runOptions) commandOnServer(e *env, m *made, args []string) (backend.Command, error) {
	if err := e.rememberOnServer(m.Sandbox, o.Env); err != nil {
		return backend.Command{}, err
	}
	c, err := o.serverCommand(e, m.Sandbox, args)
	c.Timeout = o.Timeout
	if !m.isNew { // else it was made with them
		c.Remember = given(o.Env)
	}
	return c, err
}

// detachOnServer leaves the sandbox running, with the command in it if there is
// one.
func (e *env) detachOnServer(ctx context.Context, s backend.Server, m *made, c backend.Command) error {
	if len(c.Argv) > 0 {
		exit, err := s.Raw().Detach(ctx, c, e.stderr)
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

// sayConflicts tells which changes met others in the codebase.
func (e *env) sayConflicts(exit backend.Exit) {
	for _, text := range exit.Conflicts[:min(len(exit.Conflicts), summaryLines)] {
		e.say("conflict: %s was changed in the codebase meanwhile", vpath.Escape(path.Clean(vpath.DecodeText(text))))
	}
	if more := exit.ConflictCount - summaryLines; more > 0 {
		e.say("… and %d more conflicts; see the audit log", more)
	}
}

func lastSeqOnServer(ctx context.Context, s backend.Server, id string) (uint64, error) {
	var last uint64
	err := s.Raw().Audit(ctx, id, 0, false, func(r audit.Record) error {
		last = max(last, r.Seq)
		return nil
	})
	return last, err
}
