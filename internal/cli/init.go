package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/trust"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

type initOptions struct {
	Preset string
	Force  bool // replace a file that exists
	DryRun bool // print the file
}

// Bounds of init.
const (
	initScanTime = 20 * time.Second // for the search for secrets
	initTreeRows = 24               // of the tree that init shows
)

const initHelp = `Write a commented policy file for the project in the current directory. init looks
at the languages of the project and for secrets, by the names and the content of
files. The file has rules that hide these secrets, and expectations that
agentfense policy test checks. init then shows what an agent would see.

FILE is .agentfense.yaml by default, which run, create and shell use in this
directory. You are not asked again whether you trust it. FILE - prints the file, as
--dry-run does. A file that exists is replaced only with --force.`

func newInit(e *env) *cobra.Command {
	cmd := initCommand(e)
	cmd.Short = "Write a policy file for this project and show what an agent would see"
	cmd.Example = `  agentfense init
  agentfense init --preset agent-safe
  agentfense init --dry-run`
	return cmd
}

func newPolicyInit(e *env) *cobra.Command {
	cmd := initCommand(e)
	cmd.Short = "Write a policy file for this project, as agentfense init does"
	cmd.Example = `  agentfense policy init
  agentfense policy init policy.yaml`
	return cmd
}

func initCommand(e *env) *cobra.Command {
	var o initOptions
	cmd := &cobra.Command{
		Use:  "init [FILE]",
		Long: initHelp,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := policy.ProjectFile.Rel()
			if len(args) > 0 {
				file = args[0]
			}
			return runInit(cmd, e, o, file)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Preset, "preset", "development", "preset that the policy starts from")
	f.BoolVar(&o.Force, "force", false, "replace the file if it exists")
	f.BoolVar(&o.DryRun, "dry-run", false, "print the file and write nothing")
	cmd.RegisterFlagCompletionFunc("preset", cobra.FixedCompletions(allPresets(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func runInit(cmd *cobra.Command, e *env, o initOptions, file string) error {
	dir, err := realPath(".")
	if err != nil {
		return errdefs.New(errdefs.NotFound, "init: %w", err)
	}
	if what := broad(dir); what != "" {
		return errdefs.New(errdefs.Invalid, "init: %s is %s: change to a project's directory first", vpath.Escape(dir), what)
	}
	prints := o.DryRun || file == "-"
	if _, err := os.Lstat(file); err == nil && !prints && !o.Force {
		return errdefs.New(errdefs.Exists, "init: %s exists already: --force replaces it, --dry-run prints the new one", vpath.Escape(file))
	}
	found, err := e.lookAtProject(cmd.Context(), dir)
	if err != nil {
		return err
	}
	text, p, err := found.policyFile(o.Preset)
	if err != nil {
		return err
	}
	if prints {
		_, err = fmt.Fprint(e.stdout, text)
		return err
	}
	if err := writeInitial(file, text, o.Force); err != nil {
		return err
	}
	if err := e.trustOwn(dir, file, text); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(e.stdout, vpath.Escape(file)); err != nil {
		return err
	}
	e.sayFound(found)
	return e.showAfterInit(dir, p, found)
}

// lookAtProject finds out what init needs to know of dir.
func (e *env) lookAtProject(ctx context.Context, dir string) (project, error) {
	entries := entriesOf(dir)
	p := project{languages: languagesOf(entries), agents: e.agentsOnPath(), dirs: topDirs(entries)}
	limited, cancel := context.WithTimeout(ctx, initScanTime)
	defer cancel()
	scan, err := secretscan.Scan(limited, dir)
	if err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded) {
		scan.Partial, err = true, nil
	}
	p.scan = scan
	return p, err
}

// writeInitial writes text to file as a whole or not at all. A link at its place is replaced
// and not followed.
func writeInitial(file, text string, force bool) error {
	if force {
		if err := safefs.Replace(file, []byte(text), 0o644); err != nil {
			return errdefs.New(safefs.Kind(err), "init: %w", err)
		}
		return nil
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".agentfense-init-*")
	if err != nil {
		return errdefs.New(errdefs.Denied, "init: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.WriteString(text)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err != nil {
		return errdefs.New(errdefs.Exhausted, "init: %w", err)
	}
	err = os.Link(temp.Name(), file) // fails if the name was taken meanwhile
	if errors.Is(err, os.ErrExist) {
		return errdefs.New(errdefs.Exists, "init: %s exists already: --force replaces it", vpath.Escape(file))
	}
	if err != nil {
		return errdefs.New(errdefs.Denied, "init: %w", err)
	}
	return nil
}

// trustOwn records that the user trusts the project's policy file with the content that init
// has just written: run then asks only after the file changes.
func (e *env) trustOwn(dir, file, text string) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return errdefs.New(errdefs.Internal, "init: %w", err)
	}
	if parent, err := realPath(filepath.Dir(path)); err != nil || parent != dir || filepath.Base(path) != policy.ProjectFile.Rel() {
		return nil //nolint:nilerr // not the file that run uses here
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	return trust.Add(home, filepath.Join(dir, policy.ProjectFile.Rel()), []byte(text))
}

// showAfterInit shows what an agent would see and which commands follow.
func (e *env) showAfterInit(dir string, p *policy.Policy, found project) error {
	e.say("an agent would see:")
	t := treePrinter{e: e, out: e.stderr, policy: p, all: true, depth: 1, most: initTreeRows}
	if err := t.print(dir, vpath.Root, 0); err != nil {
		return err
	}
	if t.cut {
		e.say("only %d entries are shown; `agentfense policy tree` shows all", initTreeRows)
	}
	for _, line := range nextRun(found.agents) {
		e.say("next: %s", line)
	}
	return nil
}
