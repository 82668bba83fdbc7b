package service

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/branch"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// maxStatement limits a statement: an answer has room for it and for the results.
const maxStatement = 32 << 20

// applyAttested applies or commits changes, and makes a statement about them for the client to
// sign. Errors: also Denied for a caller who may not know the policies, which are in the statement;
// Exhausted if it would be too large to send, and then nothing is applied.
func (s *Service) applyAttested(ctx context.Context, sb *record.Sandbox, o apply.Options, a wireconv.Apply) (result wireconv.Applied, err error) {
	if !mayKnowPolicy(ctx) {
		return result, errdefs.New(errdefs.Denied, "attest: a statement has the policies, so it needs a token with the scope read")
	}
	digest, shown, err := attest.Choose(sb, o.Reviewed, o.Drop != nil)
	if err != nil {
		return result, err
	}
	size, err := attest.MostBytes(sb, shown, o.Paths)
	switch {
	case err != nil:
		return result, err
	case size > maxStatement:
		return result, errdefs.New(errdefs.Exhausted, "attest: the statement may be larger than %w: apply the paths in several parts", &errdefs.Limit{Most: maxStatement, Resource: "bytes"})
	}
	o.Reviewed, o.OnConflict = digest, conflict.Stop // nobody has looked at what a merge makes
	about := attest.About{Version: executable.Version(), Reviewed: digest}
	if a.Branch != "" {
		return commitAttested(ctx, sb, a, branch.Options{Options: o, Shown: shown}, about)
	}
	if result.Result, err = s.apply(ctx, sb, o); err != nil && result.Count(apply.Applied) == 0 {
		return result, err
	}
	var made error
	about.Time = time.Now()
	result.Statement, made = attest.Make(sb, shown, &result.Result, about)
	if made != nil {
		made = errdefs.New(errdefs.KindOf(made), "the changes were applied, but not attested: %w", made)
	}
	return result, errors.Join(err, made)
}

// commitAttested commits changes, and makes a statement about the commit.
func commitAttested(ctx context.Context, sb *record.Sandbox, a wireconv.Apply, o branch.Options, about attest.About) (result wireconv.Applied, err error) {
	made, err := commit(ctx, sb, a, o)
	result.Result, result.Commit = made.Result, made.Commit
	if err != nil {
		return result, err
	}
	about.Time = time.Now()
	if result.Statement, err = made.Attest(sb, o.Shown, about); err != nil {
		err = errdefs.New(errdefs.KindOf(err), "the commit %s was made, but not attested: %w", made.Commit, err)
	}
	return result, err
}
