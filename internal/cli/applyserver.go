package cli

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// uploadOf returns what is remembered of the directory that was uploaded for a
// server's sandbox, nil if nothing is.
func (e *env) uploadOf(sb backend.Sandbox) (*record.Upload, error) {
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	u, err := home.Upload(sb.Record.ID)
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, nil
	}
	return u, err
}

// setServerPolicy gives a server's sandbox another policy, which also says what an
// apply may write here.
func (e *env) setServerPolicy(ctx context.Context, s backend.Server, sb backend.Sandbox, rules []policy.Rule) error {
	if err := s.Raw().SetPolicy(ctx, string(sb.Record.ID), rules); err != nil {
		return err
	}
	u, err := e.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.SetRules(rules)
}
