package service

import (
	"context"
	"errors"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/executable"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/attest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// maxStatement limits a statement: an answer has room for it and for the results.
const maxStatement = 32 << 20

// applyAttested applies changes, and makes a statement about them for the client to sign. Errors:
// also Denied for a caller who may not know the policies, which are in the statement; Exhausted if
// it would be too large to send, and then nothing is applied.
func (s *Service) applyAttested(ctx context.Context, sb *record.Sandbox, o apply.Options) (result wireconv.Applied, err error) {
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
	o.Reviewed = digest
	if result.Result, err = s.apply(ctx, sb, o); err != nil && result.Count(apply.Applied) == 0 {
		return result, err
	}
	var made error
	result.Statement, made = attest.Make(sb, shown, &result.Result, attest.About{Version: executable.Version(), Time: time.Now(), Reviewed: digest})
	if made != nil {
		made = errdefs.New(errdefs.KindOf(made), "the changes were applied, but not attested: %w", made)
	}
	return result, errors.Join(err, made)
}
