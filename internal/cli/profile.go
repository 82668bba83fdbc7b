package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/profile"
)

func newProfile(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "List, show, check and write the profiles of agents",
		Long: `A profile says how a coding agent is run in a sandbox: its program, what it sees of
your home directory, its variables, hosts and keys. Profiles are built in; a file
NAME.yaml in the directory that ` + "`profile ls`" + ` names adds the verb NAME, or replaces a
built-in profile, which it can extend. A project has no profiles.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProfileLs(e), newProfileShow(e), newProfileCheck(e), newProfileNew(e), newProfileSchema(e))
	return cmd
}

// listedProfile is a profile in a listing.
type listedProfile struct {
	Name      string `json:"name"`
	Title     string `json:"title"`
	Tested    string `json:"tested,omitempty"` // version of the agent
	Installed string `json:"installed"`        // path of its program, "" if there is none
	Origin    string `json:"origin"`
}

func newProfileLs(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the profiles, and whether their agents are installed",
		Example: `  agentfense profile ls
  agentfense profile ls --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			dir := profile.Dir(e.getenv)
			list := []listedProfile{}
			var damaged []error
			for _, name := range profile.Names(dir) {
				p, err := profile.Load(dir, name)
				if err != nil {
					damaged = append(damaged, err)
					continue
				}
				list = append(list, listedProfile{Name: p.Name, Title: p.Title, Tested: p.Tested, Installed: e.ownProgram(p.Command), Origin: p.Origin})
			}
			return errors.Join(append(damaged, e.printProfiles(list, asJSON))...)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (e *env) printProfiles(list []listedProfile, asJSON bool) error {
	if asJSON {
		return e.printJSON(struct {
			SchemaVersion int             `json:"schema_version"`
			Directory     string          `json:"directory"`
			Profiles      []listedProfile `json:"profiles"`
		}{schemaVersion, profile.Dir(e.getenv), list})
	}
	var rows [][]string
	for _, p := range list {
		installed := unknown
		if p.Installed != "" {
			installed = vpath.Escape(p.Installed)
		}
		tested := unknown
		if p.Tested != "" {
			tested = vpath.Escape(p.Tested)
		}
		rows = append(rows, []string{p.Name, vpath.Escape(p.Title), tested, installed, vpath.Escape(p.Origin)})
	}
	e.say("your own profiles: %s", vpath.Escape(profile.Dir(e.getenv)))
	return printTable(e.stdout, []string{"NAME", "AGENT", "TESTED", "INSTALLED", "PROFILE"}, rows)
}

func newProfileShow(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Print a profile, with the reasons of its lines",
		Example: `  agentfense profile show claude`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, err := loadProfile(profile.Dir(e.getenv), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(e.stdout, p.Text)
			return err
		},
	}
	cmd.ValidArgsFunction = e.completeProfiles
	return cmd
}

func newProfileCheck(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [NAME|FILE…]",
		Short: "Check profiles: those that are named, or all",
		Long: `Check profiles: those with the names, the files with a / in their path, or all. It
prints one line for each, and fails if one is malformed.`,
		Example: `  agentfense profile check
  agentfense profile check ./my-agent.yaml`,
		RunE: func(_ *cobra.Command, args []string) error {
			dir := profile.Dir(e.getenv)
			if len(args) == 0 {
				args = profile.Names(dir)
			}
			var bad []error
			for _, arg := range args {
				p, err := loadProfile(dir, arg)
				if err != nil {
					bad = append(bad, err)
					continue
				}
				fmt.Fprintf(e.stdout, "%s: %s for the home directory, %s, %s\n", vpath.Escape(arg), plural(len(p.Home), "rule"), plural(len(p.Hosts), "host"), plural(len(p.Secrets), "key"))
			}
			return errors.Join(bad...)
		},
	}
	cmd.ValidArgsFunction = e.completeProfiles
	return cmd
}

func newProfileSchema(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of profiles, with which editors complete and check them",
		Example: `  agentfense profile schema > profile.schema.json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := e.stdout.Write(profile.Schema())
			return err
		},
	}
}

// loadProfile reads the profile of a name, or of a file.
func loadProfile(dir, arg string) (*profile.Profile, error) {
	if filepath.Base(arg) == arg {
		p, err := profile.Load(dir, arg)
		if errdefs.Is(err, errdefs.NotFound) {
			err = errdefs.New(errdefs.NotFound, "%w; to write one: agentfense profile new %s", err, arg)
		}
		return p, err
	}
	text, err := safefs.ReadNamed(arg, profile.MaxBytes)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "profile %s: %w", vpath.Escape(arg), err)
	}
	name := filepath.Base(arg)
	name = name[:len(name)-len(filepath.Ext(name))]
	return profile.Parse(name, arg, text, func(base string) (*profile.Profile, error) { return profile.Load(dir, base) })
}

// completeProfiles proposes the names of profiles.
func (e *env) completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profile.Names(profile.Dir(e.getenv)), cobra.ShellCompDirectiveNoFileComp
}
