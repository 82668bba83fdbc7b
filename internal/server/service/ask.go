package service

import (
	"context"
	"errors"
	"io"
	"slices"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// GrantPath grants a path of the workspace, or takes its grants back.
func (c *sandboxServer) GrantPath(ctx context.Context, m *sandboxv1.GrantPathRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	r, err := wireconv.DecodeGrantPath(m)
	if err != nil {
		return nil, err
	}
	// Not while it starts: the supervisor reads the record once.
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkRuleRoom(sb.Record(), []policy.Rule{{Pattern: string(r.Change.Path)}}); err != nil {
		return nil, err
	}
	r.Change.Reason = "asked of the server by " + vpath.Escape(callerOf(ctx).Name)
	if err := sb.GrantPath(r.Change); err != nil {
		return nil, err
	}
	return s.changed(ctx, sb, func(ctx context.Context, c *api.Client) error { return c.TakeGrants(ctx) })
}

// ListAsks lists what waits for an answer, at once or after a change.
func (c *sandboxServer) ListAsks(ctx context.Context, m *sandboxv1.ListAsksRequest) (*sandboxv1.ListAsksResponse, error) {
	s := c.service
	r, err := wireconv.DecodeListAsks(m)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	if err := checkAsks(sb); err != nil {
		return nil, err
	}
	asks, err := s.awaitAsks(ctx, sb, r)
	if err != nil {
		return nil, err
	}
	return wireconv.EncodeAsks(asks), nil
}

// checkAsks refuses a sandbox of which refusals do not wait. Errors: Precondition.
func checkAsks(sb *record.Sandbox) error {
	if sb.Record().Ask == nil {
		return errdefs.New(errdefs.Precondition, "sandbox %s: it does not ask: ask_timeout is not set", sb.ID())
	}
	return nil
}

// awaitAsks returns what waits for an answer: a list other than that of r.Version, or the list as
// it is when the time is over or the server ends.
func (s *Service) awaitAsks(ctx context.Context, sb *record.Sandbox, r wireconv.ListAsks) ([]api.Ask, error) {
	client := api.At(sb.Dir())
	if r.Wait == 0 {
		asks, err := client.Asks(ctx)
		return asks, ifGone(sb, err)
	}
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	asks, listed, err := watchAsks(waiting, client, r.Version)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil && !errors.Is(err, io.EOF) { // the time is over
		if err = nil; !listed {
			asks, err = client.Asks(ctx)
		}
	}
	return asks, ifGone(sb, err)
}

// watchAsks waits for a list of another version, and returns the last list, if there was one.
func watchAsks(ctx context.Context, client *api.Client, version string) (asks []api.Ask, listed bool, err error) {
	watch, err := client.WatchAsks(ctx)
	if err != nil {
		return nil, false, err
	}
	defer watch.Close()
	for !listed || wireconv.AskVersion(asks) == version {
		now, err := watch.Next(ctx)
		if err != nil {
			return asks, listed, err
		}
		asks, listed = now, true
	}
	return asks, true, nil
}

// ifGone returns the error of a sandbox that has stopped for what its supervisor's absence causes,
// and other errors as they are.
func ifGone(sb *record.Sandbox, err error) error {
	if errdefs.Is(err, errdefs.NotFound) || errors.Is(err, io.EOF) {
		return notRunning(sb)
	}
	return err
}

// AnswerAsk answers an ask.
func (c *sandboxServer) AnswerAsk(ctx context.Context, m *sandboxv1.AnswerAskRequest) (*sandboxv1.Empty, error) {
	s := c.service
	r, err := wireconv.DecodeAnswerAsk(m)
	if err != nil {
		return nil, err
	}
	// A new start would give its id to another ask.
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := checkAsks(sb); err != nil {
		return nil, err
	}
	client, err := s.running(ctx, sb)
	if err != nil {
		return nil, err
	}
	if r.Answer.Allow {
		if err := s.permitAsk(ctx, client, r.Answer.ID); err != nil {
			return nil, err
		}
	}
	r.Answer.By = "asked of the server by " + vpath.Escape(callerOf(ctx).Name)
	if err := client.Answer(context.WithoutCancel(ctx), r.Answer); err != nil {
		return nil, err
	}
	return &sandboxv1.Empty{}, nil
}

// permitAsk refuses a host that the configuration does not include. Errors: Denied.
func (s *Service) permitAsk(ctx context.Context, client *api.Client, askID string) error {
	asks, err := client.Asks(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(asks, func(a api.Ask) bool { return a.ID == askID })
	if i < 0 {
		return errdefs.New(errdefs.NotFound, "ask %s: waits no longer", vpath.Quote(askID))
	}
	if asks[i].Host == "" {
		return nil
	}
	hosts, err := hostlist.Parse([]string{asks[i].Host})
	if err != nil {
		return err
	}
	return s.permitHosts("ask "+askID, hosts)
}
