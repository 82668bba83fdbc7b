package client

import (
	"context"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Commits are the commits that commands made in the clean repository of a sandbox.
type Commits struct {
	Source  string // the commit of the source of which the repository was made
	Commits []Commit
}

// Commit is a commit of a sandbox. Its texts are those of the sandbox: escape them for a terminal.
type Commit struct {
	Branch  string // of the sandbox; "HEAD" if none is checked out
	Current bool   // the branch is checked out
	ID      string
	Author  string // name and address; it may be cut, as Subject
	Subject string
	Signed  bool // ApplyCommits loses the signature
	Merge   bool
	Applied bool            // ApplyCommits has applied it, and no undo took that back
	Files   []CommittedFile // the list may be cut
	// FileCount is the number of all files.
	FileCount int64
}

// CommittedFile is a file that differs from that of the commit's first parent.
type CommittedFile struct {
	Path    string
	Status  ChangeStatus
	Outcome CommitOutcome
	Reason  string // of Outcome
	// Risk is not RiskNone for a file that could act on the host, by its name; RiskReason says how.
	Risk       Risk
	RiskReason string
}

// CommitOutcome is what ApplyCommits does with a file.
type CommitOutcome string

// The outcomes.
const (
	CommitTaken   CommitOutcome = ""
	CommitLeftOut CommitOutcome = "left_out" // the policy hides it
	CommitRefused CommitOutcome = "refused"  // it stops ApplyCommits
)

// Commits returns the commits of a sandbox: those of the branch that is checked out first, and
// parents before children. A commit that several branches have is there for each. Errors:
// ErrPrecondition for a sandbox without a clean repository (WithGit), or with a damaged one.
func (s *Sandbox) Commits(ctx context.Context) (*Commits, error) {
	list := &Commits{}
	for c, err := range pages(func(token string) ([]*sandboxv1.Commit, string, error) {
		page, err := s.c.sandboxes.ListCommits(ctx, &sandboxv1.ListCommitsRequest{SandboxId: s.ID, PageSize: commitsPage, PageToken: token})
		list.Source = page.GetSourceCommit()
		return page.GetCommits(), page.GetNextPageToken(), s.c.fail(ctx, "commits", err)
	}, commitFrom) {
		if err != nil {
			return nil, err
		}
		list.Commits = append(list.Commits, c)
	}
	return list, nil
}

// commitsPage is how many commits a page has. For each page the server reads the repository.
const commitsPage = 1000

func commitFrom(m *sandboxv1.Commit) Commit {
	c := Commit{
		Branch: vpath.DecodeText(m.Branch), Current: m.Current, ID: m.Id, Author: m.Author, Subject: m.Subject,
		Signed: m.Signed, Merge: m.Merge, FileCount: m.FileCount, Applied: m.Applied,
	}
	for _, f := range m.Files {
		c.Files = append(c.Files, CommittedFile{
			Path: vpath.DecodeText(f.Path), Status: ChangeStatus(word("CHANGE_STATUS_", f.Status)),
			Outcome: CommitOutcome(word("COMMIT_OUTCOME_", f.Outcome)), Reason: f.Reason,
			Risk: Risk(word("RISK_", f.Risk)), RiskReason: f.RiskReason,
		})
	}
	return c
}

// CommitsOptions say which commits ApplyCommits takes.
type CommitsOptions struct {
	From     string // the branch of the sandbox; "" for the one that is checked out
	AtBase   bool   // begin at the commit of which the clean repository was made
	Reviewed string // the last commit must have this id; "" for any
	DryRun   bool
}

// AppliedCommits is what ApplyCommits did, or would do.
type AppliedCommits struct {
	Branch     string // that is new, or was moved
	CheckedOut bool   // it is the one that is checked out
	// Transaction is what Client.UndoTransaction takes back; "" for a new branch, and in a dry run.
	Transaction string
	Base        string // the commit of the source that the branch continues
	Commit      string // the last new one; "" in a dry run
	Commits     []AppliedCommit
	LeftOut     []StoppedFile
	Refused     []StoppedFile // only in a dry run
	// The numbers of all commits and files, because the lists may be cut.
	CommitCount, LeftOutCount, RefusedCount int64
	LostSignatures                          int64
}

// AppliedCommit is a commit that was made anew, or would be.
type AppliedCommit struct {
	From            string // its id in the sandbox
	ID              string // "" in a dry run, and if it is left out
	Author, Subject string
	LeftOut         bool // it changes nothing but hidden files
}

// StoppedFile is a file of a commit that is left out, or that stops ApplyCommits.
type StoppedFile struct {
	Path   string
	Commit string // of the sandbox
	Reason string
	// Conflict says that the source's branch conflicts with it. Otherwise the policy is the reason.
	Conflict bool
}

// ApplyCommits makes the commits of a sandbox's clean repository anew in the linked directory's
// repository, with their authors and messages and without hidden files: on a new branch or, for "",
// on the one that is checked out, with the work tree and the index. These must be without changes
// at each path that the commits change, and Undo takes it back. The committer is this user, as
// git's configuration or WithGitUser says. Errors: ErrConflict, and ErrDenied for files that the
// policy does not let the sandbox write: then nothing is changed, and a dry run returns the files;
// ErrExists for a branch that exists; ErrNotFound for an unknown branch of the sandbox;
// ErrPrecondition without commits; ErrInvalid without a name and an email address.
func (s *Sandbox) ApplyCommits(ctx context.Context, branch string, o CommitsOptions) (*AppliedCommits, error) {
	got, err := s.c.sandboxes.ApplyCommits(ctx, &sandboxv1.ApplyCommitsRequest{
		SandboxId: s.ID, ToBranch: branch, FromBranch: vpath.EncodeText(o.From), AtBase: o.AtBase, ReviewedCommit: o.Reviewed,
		DryRun: o.DryRun, GitUser: s.c.settings.gitUser(),
	})
	if err != nil {
		return nil, s.c.fail(ctx, "apply commits", err)
	}
	a := &AppliedCommits{
		Branch: vpath.DecodeText(got.Branch), CheckedOut: got.CheckedOut, Transaction: got.Transaction,
		Base: got.Base, Commit: got.Commit, LeftOut: stoppedFrom(got.LeftOut), Refused: stoppedFrom(got.Refused),
		CommitCount: got.CommitCount, LeftOutCount: got.LeftOutCount, RefusedCount: got.RefusedCount, LostSignatures: got.LostSignatures,
	}
	for _, c := range got.Commits {
		a.Commits = append(a.Commits, AppliedCommit{c.From, c.Id, c.Author, c.Subject, c.LeftOut})
	}
	return a, nil
}

func stoppedFrom(sent []*sandboxv1.ApplyCommitsResponse_Stopped) []StoppedFile {
	var list []StoppedFile
	for _, f := range sent {
		list = append(list, StoppedFile{vpath.DecodeText(f.Path), f.Commit, f.Reason, f.Conflict})
	}
	return list
}
