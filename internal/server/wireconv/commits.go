package wireconv

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/gitconfig"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
)

// maxListBytes limits each list that has texts of a sandbox's commits, of which one answer has
// three at most.
const maxListBytes = 1 << 20

// CommitOutcome is what an apply of commits does with a file.
var CommitOutcome = enum(map[branch.CommitOutcome]sandboxv1.CommitOutcome{
	"":                 sandboxv1.CommitOutcome_COMMIT_OUTCOME_UNSPECIFIED,
	branch.FileLeftOut: sandboxv1.CommitOutcome_COMMIT_OUTCOME_LEFT_OUT,
	branch.FileRefused: sandboxv1.CommitOutcome_COMMIT_OUTCOME_REFUSED,
})

// ListCommits asks for a page of the commits of a sandbox.
type ListCommits struct {
	Sandbox id.Sandbox
	Page    Page
}

// DecodeListCommits reads a request.
func DecodeListCommits(r *sandboxv1.ListCommitsRequest) (ListCommits, error) {
	sb, err := SandboxID(r)
	page, pageErr := requestPage(r)
	return ListCommits{sb, page}, cmp.Or(err, pageErr)
}

// ApplyCommits asks for the commits of a sandbox to be made anew.
type ApplyCommits struct {
	Sandbox id.Sandbox
	Options branch.CommitsOptions // For is the committer
}

// DecodeApplyCommits reads a request. Errors: Invalid.
func DecodeApplyCommits(r *sandboxv1.ApplyCommitsRequest) (a ApplyCommits, err error) {
	by := DecodeGit(r.GetGitUser())
	a.Options = branch.CommitsOptions{
		From: vpath.DecodeText(r.GetFromBranch()), Branch: r.GetToBranch(), AtBase: r.GetAtBase(), Reviewed: r.GetReviewedCommit(), DryRun: r.GetDryRun(), For: &by,
	}
	if a.Sandbox, err = SandboxID(r); err != nil {
		return a, err
	}
	return a, checkCommitter(by)
}

// checkCommitter refuses a user by whom no commit can be. Errors: Invalid.
func checkCommitter(by gitconfig.User) error {
	if by.Name == "" || by.Email == "" {
		return errdefs.New(errdefs.Invalid, "git_user: a commit needs its name and its email")
	}
	return by.Check()
}

// EncodeCommit returns a commit, with as many of its files as an answer has room for.
func EncodeCommit(c *branch.Listed) *sandboxv1.Commit {
	m := &sandboxv1.Commit{
		Branch: vpath.EncodeText(c.Branch), Current: c.Current, Id: c.ID, Author: validText(c.Author), Subject: validText(c.Subject),
		Signed: c.Signed, Merge: c.Merge, FileCount: int64(len(c.Files) + c.MoreFiles), Applied: c.Applied,
	}
	left := maxListBytes
	for _, f := range c.Files {
		sent := &sandboxv1.Commit_File{
			Path: vpath.EncodeText(f.Path), Status: ChangeStatus.Encode(f.Status), Outcome: CommitOutcome.Encode(f.Outcome), Reason: validText(f.Reason),
		}
		if f.Mark != nil {
			sent.Risk, sent.RiskReason = Risk.Encode(f.Mark.Risk), f.Mark.Reason
		}
		if left -= proto.Size(sent) + fieldFrame; left < 0 {
			break
		}
		m.Files = append(m.Files, sent)
	}
	return m
}

// fieldFrame is the most that a message in a list takes besides its own size.
const fieldFrame = 6

// DecodeCommit is the reverse of EncodeCommit.
func DecodeCommit(m *sandboxv1.Commit) branch.Listed {
	c := branch.Listed{
		Branch: vpath.DecodeText(m.GetBranch()), Current: m.GetCurrent(), ID: vpath.Escape(m.GetId()), Author: m.GetAuthor(), Subject: m.GetSubject(),
		Signed: m.GetSigned(), Merge: m.GetMerge(), MoreFiles: max(0, int(m.GetFileCount())-len(m.GetFiles())), Applied: m.GetApplied(),
	}
	for _, f := range m.GetFiles() {
		file := branch.ListedFile{
			Status: ChangeStatus.Decode(f.GetStatus()), Path: vpath.DecodeText(f.GetPath()),
			Outcome: CommitOutcome.Decode(f.GetOutcome()), Reason: vpath.EscapeMessage(f.GetReason()),
		}
		if f.GetRisk() != sandboxv1.Risk_RISK_UNSPECIFIED {
			file.Mark = &review.RiskFlag{Risk: Risk.Decode(f.GetRisk()), Reason: vpath.EscapeMessage(f.GetRiskReason())}
		}
		c.Files = append(c.Files, file)
	}
	return c
}

// EncodeAppliedCommits returns the result of an apply of commits.
func EncodeAppliedCommits(a *branch.AppliedCommits) *sandboxv1.ApplyCommitsResponse {
	m := &sandboxv1.ApplyCommitsResponse{
		Base: a.Base, Commit: a.Tip, LostSignatures: int64(a.Signed), Branch: vpath.EncodeText(a.Branch), CheckedOut: a.Moves, Transaction: a.Transaction,
		CommitCount: int64(a.Total), LeftOutCount: int64(a.TotalLeftOut), RefusedCount: int64(a.TotalRefused),
		LeftOut: encodeStopped(a.LeftOut), Refused: encodeStopped(a.Refused),
	}
	left := maxListBytes
	for _, c := range a.Commits {
		sent := &sandboxv1.ApplyCommitsResponse_Applied{From: c.From, Id: c.ID, Author: validText(c.Author), Subject: validText(c.Subject), LeftOut: c.LeftOut}
		if left -= proto.Size(sent) + fieldFrame; left < 0 {
			break
		}
		m.Commits = append(m.Commits, sent)
	}
	return m
}

func encodeStopped(list []transplant.Stopped) []*sandboxv1.ApplyCommitsResponse_Stopped {
	var sent []*sandboxv1.ApplyCommitsResponse_Stopped
	left := maxListBytes
	for _, s := range list {
		one := &sandboxv1.ApplyCommitsResponse_Stopped{Path: vpath.EncodeText(s.Path), Commit: s.Commit, Reason: validText(s.Why), Conflict: s.Conflicts}
		if left -= proto.Size(one) + fieldFrame; left < 0 {
			break
		}
		sent = append(sent, one)
	}
	return sent
}

// DecodeAppliedCommits is the reverse of EncodeAppliedCommits.
func DecodeAppliedCommits(m *sandboxv1.ApplyCommitsResponse) *branch.AppliedCommits {
	a := &branch.AppliedCommits{
		Branch: vpath.DecodeText(m.GetBranch()), Moves: m.GetCheckedOut(), Transaction: vpath.Escape(m.GetTransaction()),
		Base: vpath.Escape(m.GetBase()), Tip: vpath.Escape(m.GetCommit()), Signed: int(m.GetLostSignatures()),
		Total: int(m.GetCommitCount()), TotalLeftOut: int(m.GetLeftOutCount()), TotalRefused: int(m.GetRefusedCount()),
		LeftOut: decodeStopped(m.GetLeftOut()), Refused: decodeStopped(m.GetRefused()),
	}
	for _, c := range m.GetCommits() {
		a.Commits = append(a.Commits, branch.AppliedCommit{
			From: vpath.Escape(c.GetFrom()), ID: vpath.Escape(c.GetId()), Author: c.GetAuthor(), Subject: c.GetSubject(), LeftOut: c.GetLeftOut(),
		})
	}
	return a
}

func decodeStopped(sent []*sandboxv1.ApplyCommitsResponse_Stopped) []transplant.Stopped {
	var list []transplant.Stopped
	for _, s := range sent {
		list = append(list, transplant.Stopped{Path: vpath.DecodeText(s.GetPath()), Commit: vpath.Escape(s.GetCommit()), Why: vpath.EscapeMessage(s.GetReason()), Conflicts: s.GetConflict()})
	}
	return list
}
