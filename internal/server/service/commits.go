package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/transplant"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// cleanGit makes the clean repository of a new sandbox, and returns what places it in the directory
// of the sandbox; nil if the record has none. It is made for the codebase alone. The call's end
// ends git. Errors: Precondition with the reason if there can be none; Exhausted.
func (s *Service) cleanGit(ctx context.Context, r *record.Record, of store.Codebase) (fill func(dir string) error, err error) {
	switch {
	case !r.Git.IsClean():
		return nil, nil
	case of.LinkedPath == "":
		return nil, errdefs.New(errdefs.Precondition, "git: codebase %s was uploaded: a clean repository needs a linked codebase, because its commits come back to the repository of that", of.ID)
	}
	if err := r.Git.Check(r.Limits.DiskBytes > 0 || r.Limits.DiskInodes > 0); err != nil {
		return nil, err
	}
	leave, err := s.enterExecOf(ctx, of.OwnerID)
	if err != nil {
		return nil, err
	}
	defer leave()
	return branch.MakeClean(ctx, s.home, branch.CleanOptions{Source: r.Source, Rules: r.Rules, Mode: r.Git, For: string(of.ID)})
}

// entered returns a sandbox of the caller, for a call that runs git: it counts as a command of the
// owner until leave is called. Errors: as sandbox; Exhausted for too many.
func (s *Service) entered(ctx context.Context, key record.ID) (sb *record.Sandbox, leave func(), err error) {
	if sb, err = s.sandbox(ctx, key); err != nil {
		return nil, nil, err
	}
	leave, err = s.enterExec(ctx, sb)
	return sb, leave, err
}

// ListCommits lists the commits of a sandbox. A page token has a digest of all commits, because
// commands may make others between two pages.
func (c *sandboxServer) ListCommits(ctx context.Context, m *sandboxv1.ListCommitsRequest) (*sandboxv1.ListCommitsResponse, error) {
	s := c.service
	r, err := wireconv.DecodeListCommits(m)
	if err != nil {
		return nil, err
	}
	sb, leave, err := s.entered(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer leave()
	listed, err := branch.List(ctx, sb)
	if err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	digest := digestOf(listed.Commits)
	first, err := firstOf(r.Page.Token, digest, len(listed.Commits))
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.ListCommitsResponse{SourceCommit: listed.Source}
	most, size := s.page(r.Page).Size, 0
	for i := first; i < len(listed.Commits); i++ {
		sent := wireconv.EncodeCommit(&listed.Commits[i])
		size += proto.Size(sent) + pageFrame
		if i > first && (i-first == most || size > maxResultBytes) {
			answer.NextPageToken = fmt.Sprintf("%d-%s", i, digest)
			break
		}
		answer.Commits = append(answer.Commits, sent)
	}
	return answer, nil
}

// digestOf is a digest of which commits there are.
func digestOf(commits []branch.Listed) string {
	h := sha256.New()
	for i := range commits {
		fmt.Fprintf(h, "%q %t %s\n", commits[i].Branch, commits[i].Current, commits[i].ID)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// firstOf returns the index with which the page of a token begins. Errors: Invalid.
func firstOf(token, digest string, count int) (int, error) {
	if token == "" {
		return 0, nil
	}
	number, of, _ := strings.Cut(token, "-")
	first, err := strconv.Atoi(number)
	if err != nil || of != digest || first < 0 || first >= count {
		return 0, errdefs.New(errdefs.Invalid, "page_token: the sandbox has other commits now, or the token is malformed: list from the beginning")
	}
	return first, nil
}

// ApplyCommits makes the commits of a sandbox anew in the repository of a linked codebase. As with
// Apply, what stops it is an error, except for a dry run, which answers with it. The call's end
// ends git.
func (c *sandboxServer) ApplyCommits(ctx context.Context, m *sandboxv1.ApplyCommitsRequest) (*sandboxv1.ApplyCommitsResponse, error) {
	s := c.service
	r, err := wireconv.DecodeApplyCommits(m)
	if err != nil {
		return nil, err
	}
	sb, leave, err := s.entered(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer leave()
	made, err := branch.Commits(ctx, sb, r.Options)
	report := r.Options.DryRun && made != nil && len(made.Refused) > 0 && errdefs.Is(err, errdefs.Precondition)
	if err != nil && !report {
		return nil, withoutSources(ctx, sb, withCommittedPaths(made, err))
	}
	if !mayKnowPolicy(ctx) {
		withoutVerdicts(made.Dropped)
		withoutVerdicts(made.Refused)
	}
	return wireconv.EncodeAppliedCommits(branch.Describe(made, r.Options.DryRun)), nil
}

// withCommittedPaths adds the paths that prevented an apply of commits, as withPaths does.
func withCommittedPaths(made *branch.Committed, err error) error {
	if made == nil {
		return err
	}
	var result apply.Result
	for _, stopped := range made.Refused {
		p := apply.PathResult{Path: vpath.Path(stopped.Path), Outcome: apply.Refused}
		if stopped.Conflicts {
			p.Outcome = apply.Conflict
		}
		result.Paths = append(result.Paths, p)
	}
	return withPaths(result, err)
}

// withoutVerdicts hides the rules from a caller who may not know the policy.
func withoutVerdicts(list []transplant.Stopped) {
	for i := range list {
		if !list[i].Conflicts {
			list[i].Why = unknownPolicy
		}
	}
}
