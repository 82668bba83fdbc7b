package service

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/hostlist"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/launch"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// sandboxServer answers the calls of SandboxService.
type sandboxServer struct {
	sandboxv1.UnimplementedSandboxServiceServer
	service *Service
}

// CreateSandbox creates a sandbox from a codebase. It does not start it.
func (c *sandboxServer) CreateSandbox(ctx context.Context, m *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	r, err := wireconv.DecodeCreateSandbox(m)
	if err != nil {
		return nil, err
	}
	entry, err := s.codebase(ctx, r.Codebase)
	if err != nil {
		return nil, err
	}
	record, err := s.newRecord(ctx, r, entry)
	if err != nil {
		return nil, err
	}
	// Checked before the sandbox exists, because its audit log would stay.
	if err := s.store.CheckRoom(ctx, entry.OwnerID, 1, s.config.Sandbox.MaxPerUser); err != nil {
		return nil, err
	}
	if err := checkVariables(map[string]string{}, r.Env); err != nil {
		return nil, err
	}
	repository, err := s.cleanGit(ctx, &record, entry)
	if err != nil {
		return nil, err
	}
	sb, err := s.home.CreateWith(record, repository)
	if err != nil {
		return nil, err
	}
	failpoint.At("create sandbox: made")
	if err = rememberVariables(sb, r.Env); err == nil {
		err = s.store.AddSandbox(ctx, indexed(sb), s.config.Sandbox.MaxPerUser)
	}
	if err != nil {
		return nil, errors.Join(err, s.home.Remove(sb.Name()))
	}
	s.expireAt(sb)
	return s.describe(ctx, sb)
}

// indexed is a sandbox as the index has it.
func indexed(sb *record.Sandbox) store.Sandbox {
	r := sb.Record()
	return store.Sandbox{
		ID: r.ID, Name: r.Name, CodebaseID: id.Codebase(r.Served.CodebaseID),
		OwnerID: r.Served.OwnerID, CreatedAt: r.CreatedAt,
	}
}

// workspaceOf returns where a sandbox sees its codebase: at atHostPath, a linked one at its path on
// the host, for callers that may name such paths.
func workspaceOf(caller auth.Caller, atHostPath bool, of store.Codebase, source record.Source) (string, error) {
	switch {
	case !atHostPath:
		return wireconv.Workspace, nil
	case of.LinkedPath == "":
		return "", errdefs.New(errdefs.Invalid, "at_host_path: codebase %s is uploaded: only a linked codebase has a path on the host", of.ID)
	}
	return string(source.Path), caller.ReachHost()
}

// checkNewName refuses an invalid name; "" stands for the id.
func checkNewName(name string) error {
	if name == "" {
		return nil
	}
	if err := record.CheckName(name); err != nil {
		return errdefs.New(errdefs.Invalid, "name: %w", err)
	}
	return nil
}

// newRecord checks a request and returns the record of its sandbox.
func (s *Service) newRecord(ctx context.Context, r wireconv.NewSandbox, of store.Codebase) (record.Record, error) {
	caller := callerOf(ctx)
	how, err := s.runtimeOf(caller, r.Runtime, r.Image)
	if err != nil {
		return record.Record{}, err
	}
	rules := r.Rules.Policy
	err = cmp.Or(
		s.useNetwork(&how, r), record.CheckUser(r.UID, how.name), checkNewName(r.Name), checkRules(rules), r.Git.Check(), checkLabels(r.Labels), checkSync(r.Sync, of),
	)
	if err != nil {
		return record.Record{}, err
	}
	served := &record.Served{
		CodebaseID: string(of.ID), OwnerID: of.OwnerID, Sent: r.Rules.Sent, Labels: r.Labels, Git: r.Git, Sync: r.Sync,
	}
	if lives := cmp.Or(r.ExpiresIn, s.config.Sandbox.DefaultExpiration); lives > 0 {
		served.ExpiresAt = time.Now().UTC().Add(lives)
	}
	files, err := s.codebases.Get(of.ID)
	if err != nil {
		return record.Record{}, err
	}
	path, err := files.Source()
	if err != nil {
		return record.Record{}, err
	}
	ignored, err := files.Ignores()
	if err != nil {
		return record.Record{}, err
	}
	source, err := s.home.ResolveSource(path)
	if err != nil {
		return record.Record{}, err
	}
	at, err := workspaceOf(caller, r.AtHostPath, of, source)
	if err != nil {
		return record.Record{}, err
	}
	mounts, err := s.newMounts(of.OwnerID, at, r.Mounts)
	if err == nil {
		err = s.checkScratch(r.Scratch, source, rules, r.Limits)
	}
	var named []hostlist.Secret
	if err == nil {
		err = checkNotSecret(r.Env, r.Secrets)
	}
	if err == nil {
		named, err = s.secretsFor(ctx, s.secretFinder(), of.OwnerID, r.Secrets, nil)
	}
	return record.Record{
		Name: r.Name, Source: source, Workspace: at, Rules: rules, PolicyNote: preset.Attribute(rules, wireconv.SentNote),
		Runtime: how.name, Image: how.image, UID: r.UID, Home: r.Home, Net: how.net, List: hostlist.List{AllowNet: r.AllowNet}, NetLimits: how.netLimits, Limits: r.Limits, Ignore: ignored, Served: served, Mounts: mounts, Scratch: r.Scratch, Secrets: named,
		Ports: published.Ports{Publish: r.Publish}, Ask: r.Ask, Board: r.Board, Git: r.Repository,
	}, err
}

// GetSandbox describes a sandbox.
func (c *sandboxServer) GetSandbox(ctx context.Context, r *sandboxv1.GetSandboxRequest) (*sandboxv1.Sandbox, error) {
	sb, err := c.service.sandboxFor(ctx, r)
	if err != nil {
		return nil, err
	}
	return c.service.describe(ctx, sb)
}

// ListSandboxes lists a page of sandboxes, the oldest first.
func (c *sandboxServer) ListSandboxes(ctx context.Context, m *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	s := c.service
	r, err := wireconv.DecodeListSandboxes(m)
	if err != nil {
		return nil, err
	}
	owner, err := callerOf(ctx).ListFor(r.OwnerID)
	if err != nil {
		return nil, err
	}
	if r.Codebase != "" {
		if _, err := s.codebase(ctx, r.Codebase); err != nil {
			return nil, err
		}
	}
	page, filter := s.page(r.Page), store.SandboxFilter{OwnerID: owner, Name: r.Name, CodebaseID: r.Codebase}
	answer := &sandboxv1.ListSandboxesResponse{}
	size, before := 0, ""
	for {
		entries, next, err := s.store.Sandboxes(ctx, filter, page)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			described, err := s.listed(ctx, entry, r)
			if err != nil {
				return nil, err
			}
			if described != nil {
				size += proto.Size(described) + pageFrame
				if len(answer.Sandboxes) > 0 && size > maxResultBytes {
					answer.NextPageToken = before
					return answer, nil
				}
				answer.Sandboxes = append(answer.Sandboxes, described)
			}
			before = entry.PageToken()
		}
		answer.NextPageToken = next
		// A page may be shorter than asked for, but an empty one, because of labels, would look
		// like the last.
		if next == "" || len(answer.Sandboxes) > 0 {
			return answer, nil
		}
		page.Token = next
	}
}

// listed describes a sandbox of the index as r asks for, or returns nil if it lacks one of the
// labels or was removed.
func (s *Service) listed(ctx context.Context, entry store.Sandbox, r wireconv.ListSandboxes) (*sandboxv1.Sandbox, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	sb, err := s.open(ctx, entry)
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		return nil, nil
	case errdefs.Is(err, errdefs.Precondition): // a damaged record does not hide the other sandboxes
		return s.damaged(entry, r.Labels, err), nil
	case err != nil:
		return nil, err
	}
	have := sb.Record().Served.Labels
	for name, value := range r.Labels {
		if got, ok := have[name]; !ok || got != value {
			return nil, nil
		}
	}
	d, err := s.describe(ctx, sb)
	if err == nil && r.WithUsage {
		d.Usage = usageOf(ctx, sb)
	}
	return d, err
}

// damaged describes a sandbox whose record cannot be read, from the index. Its labels are unknown.
func (s *Service) damaged(entry store.Sandbox, labels map[string]string, why error) *sandboxv1.Sandbox {
	if len(labels) > 0 {
		return nil
	}
	return &sandboxv1.Sandbox{
		Id: string(entry.ID), Name: entry.Name, CodebaseId: string(entry.CodebaseID), OwnerId: entry.OwnerID, CreatedAt: timestamppb.New(entry.CreatedAt),
		Status: sandboxv1.SandboxStatus_SANDBOX_STATUS_ERROR, StatusReason: s.scrub(why.Error()),
	}
}

// settlePatience is how long a start waits for a supervisor that is ending, as `agentfense run`
// does.
const settlePatience = 20 * time.Second

// StartSandbox starts a sandbox.
func (c *sandboxServer) StartSandbox(ctx context.Context, r *sandboxv1.StartSandboxRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	sb, unlock, err := s.lockedFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, err = supervise.DialSettled(ctx, sb, settlePatience)
	record := sb.Record()
	switch {
	case err == nil:
		return nil, errdefs.WithReason(errdefs.New(errdefs.Precondition, "sandbox %s: sandbox is already running", sb.ID()), errdefs.SandboxRunning)
	case !errdefs.Is(err, errdefs.NotFound):
		return nil, err
	case record.IsExpired(time.Now()):
		return nil, errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox has expired", sb.ID())
	}
	// The configuration may have become narrower since.
	if err := cmp.Or(s.permitHosts("allow_net", record.Hosts(time.Now())), s.permitMounts(ctx, sb)); err != nil {
		return nil, err
	}
	finder := s.secretFinder()
	if err := s.renewSecrets(ctx, finder, sb); err != nil {
		return nil, err
	}
	if err := s.permitPorts(sb.Record().Ports); err != nil {
		return nil, err
	}
	if err := s.lowerLimits(sb); err != nil {
		return nil, err
	}
	if err := apply.RecoverSources(sb, nil); err != nil {
		return nil, withoutSources(ctx, sb, err)
	}
	// An interrupted start would leave a supervisor behind.
	ctx = context.WithoutCancel(ctx)
	client, err := supervise.Launch(ctx, s.home, sb.Name())
	if err == nil {
		if err = s.giveSecrets(ctx, finder, sb, client); err != nil {
			err = errors.Join(err, s.end(ctx, sb))
		}
	}
	if err != nil {
		return nil, withoutSources(ctx, sb, errors.Join(err, supervise.NoteFailure(sb, err)))
	}
	if sb, err = s.home.Open(sb.Name()); err != nil {
		return nil, err
	}
	return s.describe(ctx, sb)
}

// StopSandbox ends all processes of a sandbox.
func (c *sandboxServer) StopSandbox(ctx context.Context, r *sandboxv1.StopSandboxRequest) (*sandboxv1.Sandbox, error) {
	s := c.service
	sb, unlock, err := s.lockedFor(ctx, r)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := s.running(ctx, sb); err != nil {
		return nil, err
	}
	if err := s.end(context.WithoutCancel(ctx), sb); err != nil {
		return nil, err
	}
	return s.describe(ctx, sb)
}

// DestroySandbox removes a sandbox with its delta.
func (c *sandboxServer) DestroySandbox(ctx context.Context, m *sandboxv1.DestroySandboxRequest) (*sandboxv1.Empty, error) {
	s := c.service
	r, err := wireconv.DecodeDestroySandbox(m)
	if err != nil {
		return nil, err
	}
	sb, unlock, err := s.locked(ctx, r.Sandbox)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = context.WithoutCancel(ctx)
	if r.UnusedOnly {
		if err := s.checkUnused(ctx, sb); err != nil {
			return nil, err
		}
		if err := s.end(ctx, sb); err != nil { // then nothing changes any more
			return nil, err
		}
		if err := s.checkUnused(ctx, sb); err != nil {
			return nil, err
		}
	}
	lost, err := s.destroy(ctx, sb)
	if err != nil {
		return nil, err
	}
	answer := &sandboxv1.Empty{}
	if lost > 0 {
		answer.DiscardedCount = new(int64(lost))
	}
	return answer, nil
}

// checkUnused refuses to remove a sandbox with a command, a session or changes. Errors:
// Precondition.
func (s *Service) checkUnused(ctx context.Context, sb *record.Sandbox) error {
	client, err := api.Dial(ctx, sb.Dir())
	var changed bool
	switch {
	case errdefs.Is(err, errdefs.NotFound):
		changed, err = review.HasChanges(sb)
	case err == nil:
		var stats api.Stats
		if stats, err = client.Stats(ctx); err != nil {
			return err
		}
		if stats.Execs > 0 || stats.Sessions > 0 {
			return errdefs.New(errdefs.Precondition, "sandbox %s: a command or a session is running in it", sb.ID())
		}
		if changed, err = client.HasChanges(ctx); err == nil && !changed {
			changed, err = review.HasChanges(sb) // in mounts
		}
	}
	if err == nil && changed {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox holds changes", sb.ID())
	}
	if err == nil && review.UnsavedBranches(sb) > 0 {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox holds commits", sb.ID())
	}
	if err == nil {
		changed, err = hasSnapshots(sb)
	}
	if err == nil && changed {
		err = errdefs.New(errdefs.Precondition, "sandbox %s: the sandbox has snapshots", sb.ID())
	}
	return err
}

// end stops a sandbox and syncs its last changes.
func (s *Service) end(ctx context.Context, sb *record.Sandbox) error {
	s.sessions.forget(sb.ID())
	killed, err := supervise.End(ctx, sb, supervise.StopPatience)
	if killed {
		s.log.WarnContext(ctx, "killed a supervisor that did not end", "sandbox", sb.ID())
	}
	if _, held, _ := sb.Holder(); err != nil && held {
		return err // it is still running
	}
	return errors.Join(err, s.syncStopped(ctx, sb))
}

// destroy ends and removes a sandbox, with the changes that cannot be synced: lost is their number.
func (s *Service) destroy(ctx context.Context, sb *record.Sandbox) (lost int, _ error) {
	if err := s.end(ctx, sb); err != nil {
		s.log.WarnContext(ctx, "destroy: cannot sync all changes", "sandbox", sb.ID(), "err", err)
		// Once the sandbox is removed, nothing would look for its leftovers.
		if err := launch.Cleanup(sb); err != nil {
			return 0, err
		}
	}
	_ = apply.RecoverSources(sb, nil) // the history has it, also after the removal
	pending, err := review.CountPending(sb)
	if err != nil {
		s.log.WarnContext(ctx, "destroy: cannot count the lost changes", "sandbox", sb.ID(), "err", err)
	}
	s.expiries.forget(sb.ID())
	failpoint.At("destroy: ended")
	if err := s.home.Remove(sb.Name()); err != nil && !errdefs.Is(err, errdefs.NotFound) {
		return 0, err
	}
	failpoint.At("destroy: removed")
	s.sweepRemoved(ctx)
	err = s.store.RemoveSandbox(ctx, sb.ID())
	if errdefs.Is(err, errdefs.NotFound) {
		err = nil
	}
	return pending.Changes, err
}

// sandboxFor returns the sandbox that a request is about. Errors: as sandbox.
func (s *Service) sandboxFor(ctx context.Context, r interface{ GetSandboxId() string }) (*record.Sandbox, error) {
	key, err := wireconv.SandboxID(r)
	if err != nil {
		return nil, err
	}
	return s.sandbox(ctx, key)
}

// sandbox returns a sandbox of the caller. Errors: NotFound also for one of another owner.
func (s *Service) sandbox(ctx context.Context, key record.ID) (*record.Sandbox, error) {
	entry, err := s.store.Sandbox(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := callerOf(ctx).Reach(entry.OwnerID, "sandbox", string(key)); err != nil {
		return nil, err
	}
	return s.open(ctx, entry)
}

// lockedFor is sandboxFor, with the sandbox's lock, which unlock gives back.
func (s *Service) lockedFor(ctx context.Context, r interface{ GetSandboxId() string }) (sb *record.Sandbox, unlock func(), err error) {
	key, err := wireconv.SandboxID(r)
	if err != nil {
		return nil, nil, err
	}
	return s.locked(ctx, key)
}

// locked is sandbox, with the sandbox's lock, which unlock gives back. It does not wait for the
// lock of another owner's sandbox.
func (s *Service) locked(ctx context.Context, key record.ID) (sb *record.Sandbox, unlock func(), err error) {
	if _, err := s.sandbox(ctx, key); err != nil {
		return nil, nil, err
	}
	unlock = s.lives.lock(string(key))
	if sb, err = s.sandbox(ctx, key); err != nil {
		unlock()
		return nil, nil, err
	}
	return sb, unlock, nil
}

// open opens a sandbox of the index. It removes from the index a sandbox that the command line
// removed.
func (s *Service) open(ctx context.Context, entry store.Sandbox) (*record.Sandbox, error) {
	sb, err := s.home.Open(entry.Name)
	switch {
	case err == nil && sb.ID() == entry.ID && sb.Record().Served != nil:
		return sb, nil
	case err == nil, errdefs.Is(err, errdefs.NotFound):
		if err := s.store.RemoveSandbox(ctx, entry.ID); err != nil && !errdefs.Is(err, errdefs.NotFound) {
			return nil, err
		}
		return nil, id.NoSuch("sandbox", string(entry.ID))
	}
	return nil, err
}

// running returns a client of a running sandbox.
func (s *Service) running(ctx context.Context, sb *record.Sandbox) (*api.Client, error) {
	c, err := api.Dial(ctx, sb.Dir())
	if errdefs.Is(err, errdefs.NotFound) {
		return nil, notRunning(sb)
	}
	return c, err
}
