package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// askVerbOptions are the flags of policy ask.
type askVerbOptions struct {
	Answer  string // the id of an ask
	Sandbox bool   // --sandbox
	Once    bool   // --once
	Project bool   // --project
	Follow  bool
	JSON    bool
}

func newPolicyAsk(e *env) *cobra.Command {
	var o askVerbOptions
	cmd := &cobra.Command{
		Use:   "ask NAME [--answer ID {allow | deny}]",
		Short: "List what a sandbox with --ask asks, and answer it",
		Long: `List what programs in a sandbox wait for: a file that they see and may not open, or a host
that no rule allows. With --answer, allow or deny it. With --follow, ask on this
terminal until the sandbox stops.

An answer counts once, unless --sandbox or --project is given. Once lets the file be
opened now; who opens it later asks again. A host is allowed for ten minutes. --sandbox
stores a grant, as policy grant does, or denies the same until the sandbox stops.
--project does this too, and stores the answer in your own rules of the project, a file
outside of it, for later sandboxes. What is denied once is not asked again for a minute.

Only a person who may use the sandbox from outside can answer. What is not answered in
time (run --ask-timeout) is denied.`,
		Example: `  agentfense policy ask fix
  agentfense policy ask fix --answer 3 allow
  agentfense policy ask fix --answer 4 deny --sandbox
  agentfense policy ask fix --answer 5 allow --project
  agentfense policy ask fix --follow`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: e.completeNames,
	}
	f := cmd.Flags()
	f.StringVar(&o.Answer, "answer", "", "answer the ask `ID`")
	f.BoolVar(&o.Once, "once", false, "the answer counts once (the default)")
	f.BoolVar(&o.Sandbox, "sandbox", false, "the answer counts as long as the sandbox exists; a denial until it stops")
	f.BoolVar(&o.Project, "project", false, "allow it in this sandbox and in later ones of its directory")
	f.BoolVar(&o.Follow, "follow", false, "ask on this terminal until the sandbox stops; with --json, print what is new")
	f.BoolVar(&o.JSON, "json", false, "print JSON; with --follow one object a line")
	cmd.MarkFlagsMutuallyExclusive("once", "sandbox", "project")
	for _, flag := range []string{"follow", "json"} {
		cmd.MarkFlagsMutuallyExclusive("answer", flag)
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		answer, err := o.read(args[1:])
		if err != nil {
			return err
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			switch {
			case o.Answer != "":
				return e.answerListed(ctx, b, args[0], answer)
			case o.Follow:
				return e.followAsks(ctx, b, args[0], o.JSON)
			}
			return e.listAsks(ctx, b, args[0], o.JSON)
		})
	}
	return cmd
}

// read returns the answer that the command line gives.
func (o *askVerbOptions) read(words []string) (api.Answer, error) {
	a := api.Answer{ID: o.Answer, Scope: api.ScopeOnce, By: "policy ask"}
	if o.Sandbox {
		a.Scope = api.ScopeSandbox
	}
	if o.Project {
		a.Scope = api.ScopeProject
	}
	word := strings.Join(words, " ")
	switch {
	case o.Answer == "" && (word != "" || o.Sandbox || o.Once || o.Project):
		return a, usageError{errdefs.New(errdefs.Invalid, "policy ask: --answer ID is missing")}
	case o.Answer != "" && word != "allow" && word != "deny":
		return a, usageError{errdefs.New(errdefs.Invalid, "policy ask --answer %s: want allow or deny%s", vpath.Quote(o.Answer), didYouMean(word, []string{"allow", "deny"}))}
	}
	if a.Allow = word == "allow"; !a.Allow && o.Project {
		return a, usageError{errdefs.New(errdefs.Invalid, "policy ask --project: not with deny: a denial counts once, or with --sandbox until the sandbox stops")}
	}
	return a, nil
}

// askJSON is an ask for scripts.
type askJSON struct {
	hookAsk
	Since   string `json:"since"`
	Waiting int    `json:"waiting"`
	Exec    string `json:"exec,omitempty"`
}

func newAskJSON(name string, a api.Ask) askJSON {
	return askJSON{newHookAsk(name, a), a.Since.Format(time.RFC3339), a.Waiting, a.Exec}
}

// listAsks prints what waits.
func (e *env) listAsks(ctx context.Context, b backend.Backend, name string, asJSON bool) error {
	asks, err := b.Asks(ctx, name)
	if err != nil {
		return err
	}
	if asJSON {
		list := make([]askJSON, len(asks))
		for i, a := range asks {
			list[i] = newAskJSON(name, a)
		}
		return e.printJSON(struct {
			SchemaVersion int       `json:"schema_version"`
			Asks          []askJSON `json:"asks"`
		}{schemaVersion, list})
	}
	if len(asks) == 0 {
		e.say("%s waits for no answer", vpath.Escape(name))
		return nil
	}
	var rows [][]string
	for _, a := range asks {
		rows = append(rows, []string{a.ID, max(0, time.Until(a.Until)).Round(time.Second).String(), present.AskLine(a)})
	}
	return printTable(e.stdout, []string{"ID", "LEFT", "ASKS FOR"}, rows)
}

// followAsks prints what is new, or has it answered on the terminal, until the sandbox stops.
func (e *env) followAsks(ctx context.Context, b backend.Backend, name string, asJSON bool) error {
	sb, err := b.Sandbox(ctx, name)
	if err != nil {
		return err
	}
	if asJSON {
		known := map[string]bool{}
		return b.FollowAsks(ctx, name, func(asks []api.Ask) error {
			for _, a := range asks {
				if known[a.ID] {
					continue
				}
				known[a.ID] = true
				if err := json.NewEncoder(e.stdout).Encode(newAskJSON(name, a)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	p := newOwnPrompter()
	if p == nil {
		return errdefs.New(errdefs.Precondition, "policy ask --follow: there is no terminal; use --json, and --answer")
	}
	defer p.close()
	p.isOfProject = isOfProject(sb)
	k := newAsker(e, b, sb, "", p.ask)
	k.by = "policy ask"
	return k.run(ctx)
}
