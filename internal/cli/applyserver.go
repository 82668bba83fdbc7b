package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/config"
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
	if err := s.SetPolicy(ctx, string(sb.Record.ID), rules); err != nil {
		return err
	}
	u, err := e.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.SetRules(rules)
}

// applyAllOnServer is applyAll for a server's sandbox. It returns how many changes were
// applied.
func (e *env) applyAllOnServer(ctx context.Context, s backend.Server, m *made) (int, error) {
	now, err := s.Sandbox(ctx, string(m.Record.ID))
	if err != nil {
		return 0, err
	}
	var take backend.Reviewed
	if now.Status == record.Running {
		if take, err = backend.ReviewNow(ctx, s, now, nil); err != nil {
			return 0, err
		}
	}
	p := e.progress("applying")
	result, err := e.applyOnServer(ctx, s, now, nil, false, take, p)
	p.stop()
	return result.Count(apply.Applied), e.tellAppliedAll(result, err)
}

// applyOnServer brings changes of a server's sandbox into the directory that was
// uploaded for it, and then into the codebase, which is the same again; or into
// the codebase alone, if no directory was uploaded from here. Progress is shown on
// p.
func (e *env) applyOnServer(ctx context.Context, s backend.Server, sb backend.Sandbox, paths []vpath.Path, dryRun bool, take backend.Reviewed, p *progress) (apply.Result, error) {
	u, err := e.uploadOf(sb)
	if err != nil {
		return apply.Result{}, err
	}
	if u == nil {
		result, err := s.Apply(ctx, sb, paths, dryRun, take.Digest)
		if n := result.Count(apply.Applied); err == nil && n > 0 && !dryRun {
			p.stop()
			e.say("applied %s to codebase %[2]s; this machine did not upload it; to download it: agentfense codebase pull %[2]s DIR", plural(n, "change"), sb.Record.Served.CodebaseID)
		}
		return result, err
	}
	return backend.BringBack(ctx, s, u, sb, paths, dryRun, take, p.count)
}

// saySynced says, where nothing waits in a server's sandbox, that its changes are
// in the codebase already: which ones its audit log tells.
func (e *env) saySynced(ctx context.Context, s backend.Server, sb backend.Sandbox) error {
	if sync := sb.Record.Served.Sync; sync == "" || sync == config.SyncManual {
		return nil
	}
	synced := map[string]bool{}
	err := s.Audit(ctx, string(sb.Record.ID), 0, false, func(r audit.Record) error {
		if applied, ok := r.Event.(audit.Applied); ok {
			for _, p := range applied.Paths {
				synced[vpath.Escape(strings.TrimPrefix(string(p), "/"))] = true
			}
		}
		return nil
	})
	if err != nil || len(synced) == 0 {
		return err
	}
	names := slices.Sorted(maps.Keys(synced))
	more := ""
	if n := len(names) - summaryLines; n > 0 {
		names, more = names[:summaryLines], fmt.Sprintf(" and %d more", n)
	}
	e.say("already in codebase %s: %s%s", sb.Record.Served.CodebaseID, strings.Join(names, ", "), more)
	return nil
}
