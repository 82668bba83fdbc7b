package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

func newCommits(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "commits NAME",
		Short: "List the commits that were made in a sandbox's clean repository",
		Long: `List the commits that commands made in a sandbox with a clean repository (--git=clean),
by branch, parents first, with the files that each changes. The branch that is checked
out comes first, with an asterisk. Hidden files are named, and so are files that the policy
does not let commands write: apply --commits leaves the former out, and refuses the latter.
Commits that apply --commits has brought out, and no undo took back, are marked as applied.

The repository of the sandbox is read without git. Its objects are copied and checked as
strictly as git can; its configuration, hooks and attributes do not count.`,
		Example: `  agentfense commits fix
  agentfense apply fix --commits
  agentfense apply fix --commits --to-branch agent/fix`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	marked(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.on(cmd, func(ctx context.Context, b backend.Backend) error {
			return runCommits(ctx, e, b, args[0], asJSON)
		})
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// listedCommits is the JSON document of `commits`.
type listedCommits struct {
	SchemaVersion int            `json:"schema_version"`
	Source        string         `json:"source"` // the commit of which the clean repository was made
	Branches      []listedBranch `json:"branches"`
}

type listedBranch struct {
	Branch  string         `json:"branch"` // escaped; "HEAD" for a detached one
	Current bool           `json:"current"`
	Commits []listedCommit `json:"commits"` // parents first
}

type listedCommit struct {
	ID      string       `json:"id"`
	Author  string       `json:"author"`  // escaped
	Subject string       `json:"subject"` // escaped
	Signed  bool         `json:"signed,omitempty"`
	Merge   bool         `json:"merge,omitempty"`
	Applied bool         `json:"applied,omitempty"` // and not undone
	Files   []listedFile `json:"files"`
	More    int          `json:"more_files,omitempty"` // a server does not list more than 1 MiB
}

type listedFile struct {
	Status changes.Status `json:"status"`
	Path   string         `json:"path"` // escaped
	// Outcome is "left_out" for a hidden file, and "refused" for one that stops apply --commits.
	Outcome branch.CommitOutcome `json:"outcome,omitempty"`
	Reason  string               `json:"reason,omitempty"`
	*review.RiskFlag
}

func runCommits(ctx context.Context, e *env, b backend.Backend, name string, asJSON bool) error {
	p := e.progressUnless(asJSON, "reading commits")
	l, err := b.Commits(ctx, name, e.args)
	p.stop()
	if err != nil {
		return err
	}
	doc := commitsDocument(l)
	if asJSON {
		return e.printJSON(doc)
	}
	for _, b := range doc.Branches {
		if err := e.printBranch(b); err != nil {
			return err
		}
	}
	if len(doc.Branches) == 0 {
		n, err := b.UnsavedBranches(ctx, name)
		if err == nil && n > 0 { // the summary of run has counted them, and rm refuses
			e.say("no branch of %[1]s has new commits; stashes and tags have, which are not listed: agentfense exec %[1]s -- git stash list", vpath.Escape(name))
		} else {
			e.say("no commits were made in %s", vpath.Escape(name))
		}
		return err
	}
	if slices.ContainsFunc(l.Commits, func(c branch.Listed) bool { return !c.Applied }) {
		e.say("to bring commits into the source's repository: agentfense apply %s --commits [--to-branch BRANCH]", vpath.Escape(name))
	}
	return nil
}

// commitsDocument groups commits by branch.
func commitsDocument(l branch.Listing) listedCommits {
	doc := listedCommits{SchemaVersion: schemaVersion, Source: l.Source, Branches: []listedBranch{}}
	for i := range l.Commits {
		c := &l.Commits[i]
		if i == 0 || c.Branch != l.Commits[i-1].Branch {
			doc.Branches = append(doc.Branches, listedBranch{Branch: vpath.Escape(c.Branch), Current: c.Current})
		}
		last := &doc.Branches[len(doc.Branches)-1]
		last.Commits = append(last.Commits, listedCommitOf(c))
	}
	return doc
}

func listedCommitOf(c *branch.Listed) listedCommit {
	l := listedCommit{ID: c.ID, Author: vpath.Escape(c.Author), Subject: vpath.Escape(c.Subject), Signed: c.Signed, Merge: c.Merge, Applied: c.Applied, Files: []listedFile{}, More: c.MoreFiles}
	for _, f := range c.Files {
		l.Files = append(l.Files, listedFile{f.Status, vpath.Escape(f.Path), f.Outcome, f.Reason, f.Mark})
	}
	return l
}

func (e *env) printBranch(b listedBranch) error {
	var text strings.Builder
	sign := " "
	if b.Current {
		sign = "*"
	}
	fmt.Fprintf(&text, "%s %s: %s\n", sign, b.Branch, plural(len(b.Commits), "commit"))
	for _, c := range b.Commits {
		fmt.Fprintf(&text, "%s  %s  %s", shortID(c.ID), c.Author, c.Subject)
		if c.Applied {
			text.WriteString(e.colour(e.stdout, "32", "  (applied)"))
		}
		text.WriteByte('\n')
		for _, f := range c.Files {
			fmt.Fprintf(&text, "  %s %s", f.Status, f.Path)
			switch {
			case f.Outcome == branch.FileLeftOut:
				fmt.Fprintf(&text, "  (left out: %s)", f.Reason)
			case f.Outcome == branch.FileRefused:
				fmt.Fprintf(&text, "  (refused: %s)", f.Reason)
			case f.RiskFlag != nil:
				text.WriteString(e.colour(e.stdout, "33", fmt.Sprintf("  ! %s: %s", f.Risk, f.RiskFlag.Reason)))
			}
			text.WriteByte('\n')
		}
		if c.More > 0 {
			fmt.Fprintf(&text, "  and %s\n", plural(c.More, "more file"))
		}
	}
	_, err := e.stdout.WriteString(text.String())
	return err
}

// shortID abbreviates the id of a commit for people.
func shortID(id string) string { return id[:min(len(id), 12)] }

// commitsOptions are the flags of apply that are about commits.
type commitsOptions struct {
	Commits bool
	From    string
	AtBase  bool
}

func (o *commitsOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Commits, "commits", false, "apply the commits that were made in the clean repository of the sandbox: to the branch that is checked out in the source, with its work tree, or to the new branch of --to-branch")
	f.StringVar(&o.From, "from-branch", "", "with --commits, take those of this `BRANCH` of the sandbox (default: the one that is checked out)")
	f.BoolVar(&o.AtBase, "at-base", false, "with --commits, begin the branch at the commit of which the clean repository was made, not at the last one of the source's branch")
	for _, other := range []string{"patch", "hunk", "latest", "to", "rebase", "all", "message", "in"} {
		cmd.MarkFlagsMutuallyExclusive("commits", other)
	}
}

// checkCommits refuses flags and paths that exclude each other with --commits.
func (o *applyOptions) checkCommits(paths []string) error {
	switch {
	case !o.Commits && (o.From != "" || o.AtBase):
		return usageError{errdefs.New(errdefs.Invalid, "--from-branch and --at-base are about commits: give --commits, too")}
	case o.Commits && o.Attest != "":
		return usageError{errdefs.New(errdefs.Invalid, "--attest is about changes that diff has shown, and --commits brings commits that no diff has shown: leave --commits out, and the branch gets one attested commit of the changes")}
	case o.Commits && len(paths) > 0:
		return usageError{errdefs.New(errdefs.Invalid, "--commits applies commits as a whole: leave the paths out")}
	case o.Commits && o.Branch == "" && o.AtBase:
		return usageError{errdefs.New(errdefs.Invalid, "--at-base begins a new branch: name it with --to-branch BRANCH")}
	}
	return nil
}

// appliedCommits is the JSON document of `apply --commits`.
type appliedCommits struct {
	SchemaVersion int             `json:"schema_version"`
	DryRun        bool            `json:"dry_run"`
	Branch        string          `json:"branch"`                // escaped
	CheckedOut    bool            `json:"checked_out"`           // it is the one that is checked out
	Transaction   string          `json:"transaction,omitempty"` // of undo, for a branch that is checked out
	Base          string          `json:"base,omitempty"`
	Commit        string          `json:"commit,omitempty"` // the last one; absent from a dry run
	Commits       []appliedCommit `json:"commits"`
	LeftOut       []stoppedPath   `json:"left_out,omitempty"`
	Refused       []stoppedPath   `json:"refused,omitempty"`
	Signatures    int             `json:"lost_signatures,omitempty"`
}

type appliedCommit struct {
	From    string `json:"from"`         // its id in the sandbox
	ID      string `json:"id,omitempty"` // absent if it was left out, and from a dry run
	Author  string `json:"author"`       // escaped
	Subject string `json:"subject"`      // escaped
}

type stoppedPath struct {
	Path   string `json:"path"` // escaped
	Commit string `json:"commit"`
	Reason string `json:"reason"`
	// Conflict says that the branch of the source stands against it, and not the policy.
	Conflict bool `json:"conflict,omitempty"`
}

// applyCommits is `apply --commits`.
func applyCommits(ctx context.Context, e *env, b backend.Backend, name string, o applyOptions) error {
	p := e.progressUnless(o.JSON, "applying commits")
	r, err := b.ApplyCommits(ctx, name, backend.CommitsOptions{Again: e.args, CommitsOptions: branch.CommitsOptions{
		From: o.From, Branch: o.Branch, AtBase: o.AtBase, Reviewed: o.Reviewed, DryRun: o.DryRun,
		Waiting: e.sayWaiting, Recovered: e.sayRecovered,
	}})
	p.stop()
	if r == nil {
		return err
	}
	if o.JSON {
		return errors.Join(err, e.printJSON(appliedCommitsOf(r, o)))
	}
	e.sayStopped("left out", r.LeftOut, r.TotalLeftOut)
	e.sayStopped("refused", r.Refused, r.TotalRefused)
	if !o.AtBase && slices.ContainsFunc(r.Refused, func(s transplant.Stopped) bool { return s.Conflicts }) {
		how := "to begin the branch where the sandbox began: --at-base"
		if o.Branch == "" {
			how = "to make a new branch of them: --to-branch BRANCH --at-base"
		}
		e.say("%s · to apply files in place of commits: agentfense apply %s", how, vpath.Escape(name))
	}
	if err != nil {
		return err
	}
	made := r.Total
	for _, c := range r.Commits {
		if c.LeftOut {
			made--
			continue
		}
		if _, err := fmt.Fprintf(e.stdout, "%s  %s  %s\n", shortID(cmp.Or(c.ID, c.From)), vpath.Escape(c.Author), vpath.Escape(c.Subject)); err != nil {
			return err
		}
	}
	if r.Signed > 0 {
		e.say("%s lost the signature, because it is of the commit in the sandbox", plural(r.Signed, "commit"))
	}
	commits, branch := plural(made, "commit"), vpath.Escape(r.Branch)
	switch {
	case o.DryRun && r.Moves:
		e.say("would commit %s to branch %s, and change its work tree", commits, branch)
	case o.DryRun:
		e.say("would commit %s to branch %s", commits, branch)
	case r.Moves:
		e.say("committed %s to branch %s, with its work tree; to take it back: agentfense undo %s", commits, branch, r.Transaction)
		e.say("the sandbox keeps its changes; to apply those that are not committed: agentfense apply %s", vpath.Escape(name))
	default:
		e.say("committed %s to branch %s; your work tree and the sandbox stay as they are", commits, branch)
	}
	return nil
}

func appliedCommitsOf(r *branch.AppliedCommits, o applyOptions) appliedCommits {
	doc := appliedCommits{
		SchemaVersion: schemaVersion, DryRun: o.DryRun, Branch: vpath.Escape(r.Branch), CheckedOut: r.Moves, Transaction: r.Transaction, Base: r.Base, Commit: r.Tip, Commits: []appliedCommit{},
		LeftOut: stoppedPaths(r.LeftOut), Refused: stoppedPaths(r.Refused), Signatures: r.Signed,
	}
	for _, c := range r.Commits {
		doc.Commits = append(doc.Commits, appliedCommit{From: c.From, ID: c.ID, Author: vpath.Escape(c.Author), Subject: vpath.Escape(c.Subject)})
	}
	return doc
}

func stoppedPaths(list []transplant.Stopped) []stoppedPath {
	var paths []stoppedPath
	for _, s := range list {
		paths = append(paths, stoppedPath{vpath.Escape(s.Path), s.Commit, s.Why, s.Conflicts})
	}
	return paths
}

// sayStopped names paths of commits.
func (e *env) sayStopped(what string, list []transplant.Stopped, total int) {
	for _, s := range list[:min(len(list), summaryRoom)] {
		word := what
		if s.Conflicts {
			word = "conflict"
		}
		e.say("%s: %s of %s: %s", word, vpath.Escape(s.Path), shortID(s.Commit), vpath.EscapeMessage(s.Why))
	}
	if more := total - summaryRoom; more > 0 {
		e.say("%s: %d more; --json lists all", what, more)
	}
}
