package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentfense/agentfense/internal/cli/local"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
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

The repository of the sandbox is read without git. Its objects go through git's checks for
objects of others; its configuration, hooks and attributes do not count.`,
		Example: `  agentfense commits fix
  agentfense apply fix --commits --to-branch agent/fix`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.completeNames,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.onCommits(cmd, func(ctx context.Context, b *local.Backend) error {
			return runCommits(ctx, e, b, args[0], asJSON)
		})
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// onCommits has do act on this host.
func (e *env) onCommits(cmd *cobra.Command, do func(context.Context, *local.Backend) error) error {
	if err := e.hereOnly(cmd.CommandPath()); err != nil {
		return err
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	return doneElsewhere(do(cmd.Context(), local.New(home, e.getenv, e.owner)))
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
	Files   []listedFile `json:"files"`
}

type listedFile struct {
	Status changes.Status `json:"status"`
	Path   string         `json:"path"` // escaped
	// Outcome is "left_out" for a hidden file, and "refused" for one that stops apply --commits.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	*review.RiskFlag
}

func runCommits(ctx context.Context, e *env, b *local.Backend, name string, asJSON bool) error {
	sb, err := b.Readable(ctx, name, "", e.args)
	if err != nil {
		return err
	}
	doc, err := listCommits(ctx, e, sb)
	if err != nil {
		return err
	}
	if asJSON {
		return e.printJSON(doc)
	}
	for _, b := range doc.Branches {
		if err := e.printBranch(b); err != nil {
			return err
		}
	}
	if len(doc.Branches) == 0 {
		e.say("no commits were made in %s", sb.Name())
		return nil
	}
	e.say("to bring commits into the source's repository: agentfense apply %s --commits --to-branch BRANCH", sb.Name())
	return nil
}

func listCommits(ctx context.Context, e *env, sb *record.Sandbox) (doc listedCommits, err error) {
	w, err := changes.OpenToRead(sb)
	if err != nil {
		return doc, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	table, err := risk.New(sb.Record().Marks)
	if err != nil {
		return doc, err
	}
	p := e.progress("reading commits")
	defer p.stop()
	taken, err := branch.Take(ctx, sb)
	if err != nil {
		return doc, err
	}
	defer func() { err = errors.Join(err, taken.Close()) }()
	doc = listedCommits{SchemaVersion: schemaVersion, Source: taken.Info.Source, Branches: []listedBranch{}}
	judge := branch.Judge(w)
	for _, ref := range taken.Refs() {
		commits, err := taken.Of(ref)
		if err != nil {
			return doc, err
		}
		listed := listedBranch{Branch: branchName(ref), Current: ref == taken.Heads.Current}
		for _, c := range commits {
			listed.Commits = append(listed.Commits, listedCommitOf(c, table, judge))
		}
		doc.Branches = append(doc.Branches, listed)
	}
	return doc, nil
}

// branchName is a branch of the sandbox as people write it.
func branchName(ref string) string {
	return vpath.Escape(strings.TrimPrefix(ref, "refs/heads/"))
}

func listedCommitOf(c *transplant.Commit, table *risk.Table, judge func(string) (transplant.Verdict, string)) listedCommit {
	l := listedCommit{ID: c.ID, Author: vpath.Escape(c.AuthorName()), Subject: vpath.Escape(c.Subject()), Signed: c.Signed, Merge: len(c.Parents) > 1, Files: []listedFile{}}
	for _, x := range c.Changes {
		f := listedFile{Status: statusOf(x), Path: vpath.Escape(x.Path)}
		v, why := judge(x.Path)
		switch v {
		case transplant.Drop:
			f.Outcome, f.Reason = "left_out", why
		case transplant.Refuse:
			f.Outcome, f.Reason = "refused", why
		default:
			f.RiskFlag = markOf(table, x)
		}
		l.Files = append(l.Files, f)
	}
	return l
}

// statusOf says how a commit changes a file.
func statusOf(x transplant.Change) changes.Status {
	switch {
	case x.Old == transplant.Entry{}:
		return changes.Added
	case x.New == transplant.Entry{}:
		return changes.Deleted
	case x.Old.Mode[:3] != x.New.Mode[:3]:
		return changes.Retyped
	}
	return changes.Modified
}

// markOf is the mark that a file has by its name, nil for none.
func markOf(table *risk.Table, x transplant.Change) *review.RiskFlag {
	p, err := vpath.Parse(x.Path)
	if err != nil {
		return nil
	}
	entry, found := table.At(p, false)
	switch {
	case !found && x.IsLink():
		return &review.RiskFlag{Risk: review.TrustedLater, Reason: "symbolic link"}
	case !found:
		return nil
	case entry.Runs:
		return &review.RiskFlag{Risk: review.RunsOnHost, Reason: entry.Reason}
	}
	return &review.RiskFlag{Risk: review.TrustedLater, Reason: entry.Reason}
}

func (e *env) printBranch(b listedBranch) error {
	var text strings.Builder
	sign := " "
	if b.Current {
		sign = "*"
	}
	fmt.Fprintf(&text, "%s %s: %s\n", sign, b.Branch, plural(len(b.Commits), "commit"))
	for _, c := range b.Commits {
		fmt.Fprintf(&text, "%s  %s  %s\n", shortID(c.ID), c.Author, c.Subject)
		for _, f := range c.Files {
			fmt.Fprintf(&text, "  %s %s", f.Status, f.Path)
			switch {
			case f.Outcome == "left_out":
				fmt.Fprintf(&text, "  (left out: %s)", f.Reason)
			case f.Outcome == "refused":
				fmt.Fprintf(&text, "  (refused: %s)", f.Reason)
			case f.RiskFlag != nil:
				text.WriteString(e.colour(e.stdout, "33", fmt.Sprintf("  ! %s: %s", f.Risk, f.RiskFlag.Reason)))
			}
			text.WriteByte('\n')
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
	f.BoolVar(&o.Commits, "commits", false, "apply the commits that were made in the clean repository of the sandbox, to the branch of --to-branch")
	f.StringVar(&o.From, "from-branch", "", "with --commits, take those of this `BRANCH` of the sandbox (default: the one that is checked out)")
	f.BoolVar(&o.AtBase, "at-base", false, "with --commits, begin the branch at the commit of which the clean repository was made, not at the last one of the source's branch")
	for _, other := range []string{"patch", "hunk", "latest", "to", "rebase", "all", "message", "in"} {
		cmd.MarkFlagsMutuallyExclusive("commits", other)
	}
}

// check refuses flags and paths that do not fit to commits.
func (o *applyOptions) checkCommits(paths []string) error {
	switch {
	case !o.Commits && (o.From != "" || o.AtBase):
		return usageError{errdefs.New(errdefs.Invalid, "--from-branch and --at-base are about commits: give --commits, too")}
	case o.Commits && o.Attest != "":
		return usageError{errdefs.New(errdefs.Invalid, "--attest is about changes that diff has shown, and --commits brings commits that no diff has shown: leave --commits out, and the branch gets one attested commit of the changes")}
	case o.Commits && len(paths) > 0:
		return usageError{errdefs.New(errdefs.Invalid, "--commits applies commits as a whole: leave the paths out")}
	case o.Commits && o.Branch == "":
		return usageError{errdefs.New(errdefs.Invalid, "--commits does not change the work tree of the source: name a new branch with --to-branch BRANCH; then git merge BRANCH brings it into your branch")}
	}
	return nil
}

// appliedCommits is the JSON document of `apply --commits`.
type appliedCommits struct {
	SchemaVersion int             `json:"schema_version"`
	DryRun        bool            `json:"dry_run"`
	Branch        string          `json:"branch"` // escaped
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
func applyCommits(ctx context.Context, e *env, b *local.Backend, name string, o applyOptions) error {
	sb, err := b.Readable(ctx, name, "", e.args)
	if err != nil {
		return err
	}
	p := e.progressUnless(o.JSON, "applying commits")
	r, err := branch.Commits(ctx, sb, branch.CommitsOptions{From: o.From, Branch: o.Branch, AtBase: o.AtBase, Reviewed: o.Reviewed, DryRun: o.DryRun})
	p.stop()
	if r == nil {
		return err
	}
	if o.JSON {
		return errors.Join(err, e.printJSON(appliedCommitsOf(r, o)))
	}
	e.sayStopped("left out", r.Dropped)
	e.sayStopped("refused", r.Refused)
	if !o.AtBase && slices.ContainsFunc(r.Refused, func(s transplant.Stopped) bool { return s.Conflicts }) {
		e.say("to begin the branch where the sandbox began: --at-base · to apply files in place of commits: agentfense apply %s", sb.Name())
	}
	if err != nil {
		return err
	}
	made := 0
	for _, m := range r.Moved {
		if m.Real == "" {
			continue
		}
		made++
		if _, err := fmt.Fprintf(e.stdout, "%s  %s  %s\n", shortID(m.Real), vpath.Escape(m.AuthorName()), vpath.Escape(m.Subject())); err != nil {
			return err
		}
	}
	if r.Signed > 0 {
		e.say("%s lost the signature, because it is of the commit in the sandbox", plural(r.Signed, "commit"))
	}
	if o.DryRun {
		e.say("would commit %s to branch %s", plural(made, "commit"), vpath.Escape(o.Branch))
		return nil
	}
	e.say("committed %s to branch %s; your work tree and the sandbox stay as they are", plural(made, "commit"), vpath.Escape(o.Branch))
	return nil
}

func appliedCommitsOf(r *transplant.Transplanted, o applyOptions) appliedCommits {
	doc := appliedCommits{
		SchemaVersion: schemaVersion, DryRun: o.DryRun, Branch: vpath.Escape(o.Branch), Base: r.Base, Commits: []appliedCommit{},
		LeftOut: stoppedPaths(r.Dropped), Refused: stoppedPaths(r.Refused), Signatures: r.Signed,
	}
	isMade := !o.DryRun && len(r.Refused) == 0
	if isMade {
		doc.Commit = r.Tip
	}
	for _, m := range r.Moved {
		c := appliedCommit{From: m.ID, Author: vpath.Escape(m.AuthorName()), Subject: vpath.Escape(m.Subject())}
		if isMade {
			c.ID = m.Real
		}
		doc.Commits = append(doc.Commits, c)
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
func (e *env) sayStopped(what string, list []transplant.Stopped) {
	for _, s := range list[:min(len(list), summaryRoom)] {
		word := what
		if s.Conflicts {
			word = "conflict"
		}
		e.say("%s: %s of %s: %s", word, vpath.Escape(s.Path), shortID(s.Commit), vpath.Escape(s.Why))
	}
	if more := len(list) - summaryRoom; more > 0 {
		e.say("%s: %d more; --json lists all", what, more)
	}
}
