package cli

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// ReviewOptions are reviewui.Options.
type ReviewOptions struct {
	Backend backend.Backend
	Changes backend.Changes
	Name    string
	Mount   string
	Paths   []vpath.Path
	Again   []string
	// Answer answers an ask that was shown; IsOfProject says that an answer may be for the project.
	Answer      func(ctx context.Context, name string, shown api.Ask, a api.Answer) error
	IsOfProject bool
	In, Out     *os.File
	Getenv      func(string) string
}

// ReviewChoice is a reviewui.Choice.
type ReviewChoice struct{ Name, About string }

func newReview(e *env) *cobra.Command {
	var w whichChanges
	cmd := &cobra.Command{
		Use:   "review [NAME [PATH…]]",
		Short: "Review, apply and discard a sandbox's changes on a screen",
		Long: `Review what a sandbox changed on a screen: the changes by risk, and the diff of each.
You stage files and apply what you staged, or discard files. Only what was staged is
applied. A file that the sandbox changes after you staged it is unstaged and marked.
The list is read again while the sandbox runs. Press ? for the keys.

Without NAME it shows the sandbox of this directory that has changes. Of several, you
choose one. It needs a terminal: programs use diff and apply.`,
		Example: `  agentfense review
  agentfense review fix
  agentfense review fix --in data`,
		ValidArgsFunction: e.completeChanged(0),
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !term.IsTerminal(int(e.stdin.Fd())) || !term.IsTerminal(int(e.stdout.Fd())) {
			return errdefs.New(errdefs.Precondition, "review: needs a terminal; without one, use agentfense diff NAME and agentfense apply NAME")
		}
		if e.parts == nil {
			return executable.ExecServer()
		}
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error { return runReview(ctx, e, b, &w, args) })
	}
	cmd.Flags().StringVar(&w.in, "in", "", "show the changes in this `MOUNT`, not those of the workspace")
	cmd.RegisterFlagCompletionFunc("in", e.completeMounts)
	return cmd
}

func runReview(ctx context.Context, e *env, b backend.Backend, w *whichChanges, args []string) error {
	again := e.args
	if len(args) == 0 {
		name, err := e.chooseReview(ctx, b)
		if name == "" || err != nil {
			return err
		}
		args, again = []string{name}, append(slices.Clone(e.args), name)
	}
	mounts, paths, err := w.choose(ctx, b, args[0], args[1:])
	if err != nil {
		return e.explainPaths(ctx, b, args[0], w.mount(), args[1:], err)
	}
	c, err := b.Changes(ctx, args[0], mounts[0], again)
	if err != nil {
		return err
	}
	return e.parts.Review(ctx, ReviewOptions{
		Backend: b, Changes: c, Name: args[0], Mount: mounts[0], Paths: paths, Again: again, In: e.stdin, Out: e.stdout, Getenv: e.getenv,
		IsOfProject: isOfProject(c.Sandbox()),
		Answer: func(ctx context.Context, name string, shown api.Ask, a api.Answer) error {
			_, err := e.answerAsk(ctx, b, name, shown, a)
			return err
		},
	})
}

// chooseReview returns the sandbox of this directory that has changes, or of several the one that
// the person chooses; "" if the person chooses none. Errors: NotFound if no sandbox has changes.
func (e *env) chooseReview(ctx context.Context, b backend.Backend) (string, error) {
	all, err := b.Sandboxes(ctx, true)
	if all == nil && err != nil {
		return "", err
	}
	here := currentDir()
	var inThis, others []ReviewChoice
	for _, sb := range all {
		if sb.Usage == nil || sb.Usage.Changes == 0 {
			continue
		}
		choice := ReviewChoice{sb.Ref(), aboutReview(&sb)}
		if here != "" && string(sb.Record.Source.Path) == here {
			inThis = append(inThis, choice)
		} else {
			others = append(others, choice)
		}
	}
	switch {
	case len(inThis) == 1:
		return inThis[0].Name, nil
	case len(inThis)+len(others) == 0:
		return "", errdefs.New(errdefs.NotFound, "review: no sandbox has changes; to list the sandboxes: agentfense ls")
	}
	return e.parts.PickReview(ctx, e.stdin, e.stdout, append(inThis, others...))
}

// aboutReview says what a person needs to choose a sandbox.
func aboutReview(sb *backend.Sandbox) string {
	more := ""
	if sb.Usage.More {
		more = "+"
	}
	return fmt.Sprintf("%d%s changed, %s, created %s, %s", sb.Usage.Changes, more, sb.Record.Source.Path.String(), present.LocalTime(sb.Record.CreatedAt), sb.Status)
}
