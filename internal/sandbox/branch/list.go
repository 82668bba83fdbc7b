package branch

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

// Listing has the commits that were made in a sandbox's clean repository. Its texts are those of
// the sandbox: hostile.
type Listing struct {
	Source  string // the commit of which the clean repository was made
	Commits []Listed
}

// Listed is a commit of a branch. The branch that is checked out comes first, and parents come
// before children. A commit that several branches have is listed for each.
type Listed struct {
	Branch  string // "HEAD" for a detached one
	Current bool
	ID      string
	Author  string // name and address
	Subject string
	Signed  bool
	Merge   bool
	Applied bool // Commits brought it out, and no undo took that back
	Files   []ListedFile
	// MoreFiles says how many files are not in Files, because a server has cut the list.
	MoreFiles int
}

// ListedFile is a file that a commit changes against its first parent.
type ListedFile struct {
	Status  changes.Status
	Path    string // in the repository
	Outcome CommitOutcome
	Reason  string           // of the outcome
	Mark    *review.RiskFlag // that the file has by its name, nil for none
}

// CommitOutcome is what Commits does with a file.
type CommitOutcome string

// The outcomes; "" means that the file is taken.
const (
	FileLeftOut CommitOutcome = "left_out"
	FileRefused CommitOutcome = "refused"
)

// List lists the commits of a sandbox. Errors: those of Take.
func List(ctx context.Context, s *record.Sandbox) (l Listing, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	table, err := risk.New(s.Record().Marks)
	if err != nil {
		return l, err
	}
	taken, err := Take(ctx, s)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, taken.Close()) }()
	l.Source = taken.Info.Source
	judge := Judge(w)
	for _, ref := range taken.Refs() {
		commits, err := taken.Of(ref)
		if err != nil {
			return l, err
		}
		for _, c := range commits {
			one := listedOf(c, table, judge)
			one.Branch, one.Current = strings.TrimPrefix(ref, "refs/heads/"), ref == taken.Heads.Current
			one.Applied = taken.IsApplied(c)
			l.Commits = append(l.Commits, one)
		}
	}
	return l, nil
}

func listedOf(c *transplant.Commit, table *risk.Table, judge func(string) (transplant.Verdict, string)) Listed {
	l := Listed{ID: c.ID, Author: cut(c.AuthorName()), Subject: cut(c.Subject()), Signed: c.Signed, Merge: len(c.Parents) > 1}
	for _, x := range c.Changes {
		f := ListedFile{Status: statusOf(x), Path: x.Path}
		v, why := judge(x.Path)
		switch v {
		case transplant.Drop:
			f.Outcome, f.Reason = FileLeftOut, why
		case transplant.Refuse:
			f.Outcome, f.Reason = FileRefused, why
		default:
			f.Mark = markOf(table, x)
		}
		l.Files = append(l.Files, f)
	}
	return l
}

// maxShown is how much of an author or a subject is shown, in bytes.
const maxShown = 1000

// cut shortens a text that is only shown.
func cut(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for end > maxShown-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
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

// AppliedCommits is what Commits did, or would do, as people see it. A server may have cut the
// lists: the numbers are those of all.
type AppliedCommits struct {
	Base   string // the commit of the source that the branch continues
	Branch string // that is new, or was moved
	Moves  bool   // it is the one that is checked out
	// Transaction is that of the history, if the branch that is checked out was moved.
	Transaction  string
	Tip          string // the last new commit; "" in a dry run, and if something was refused
	Commits      []AppliedCommit
	LeftOut      []transplant.Stopped
	Refused      []transplant.Stopped
	Signed       int // commits that lost the signature
	Total        int // commits
	TotalLeftOut int // files that were left out
	TotalRefused int // files that were refused
}

// AppliedCommit is a commit of the sandbox that was made anew, or would be.
type AppliedCommit struct {
	From    string // its id in the sandbox
	ID      string // "" if there is none, or not yet
	Author  string // name and address
	Subject string
	LeftOut bool // it changes nothing but hidden files; false if something is refused
}

// Describe describes the result of Commits.
func Describe(r *Committed, dryRun bool) *AppliedCommits {
	a := &AppliedCommits{
		Branch: r.Branch, Moves: r.Moves, Transaction: r.Transaction, Base: r.Base, LeftOut: r.Dropped, Refused: r.Refused, Signed: r.Signed,
		Total: len(r.Moved), TotalLeftOut: len(r.Dropped), TotalRefused: len(r.Refused),
	}
	isMade := !dryRun && len(r.Refused) == 0
	if isMade {
		a.Tip = r.Tip
	}
	for _, m := range r.Moved {
		c := AppliedCommit{From: m.ID, Author: cut(m.AuthorName()), Subject: cut(m.Subject()), LeftOut: m.Real == "" && len(r.Refused) == 0}
		if isMade {
			c.ID = m.Real
		}
		a.Commits = append(a.Commits, c)
	}
	return a
}
