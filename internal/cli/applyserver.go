package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/audit"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/sandbox"
	"github.com/agentfense/agentfense/internal/vpath"
)

// uploadOf returns what is remembered of the directory that was uploaded for a
// server's sandbox, nil if nothing is.
func (e *env) uploadOf(sb control.Sandbox) (*sandbox.Upload, error) {
	home, err := e.openHome()
	if err != nil {
		return nil, err
	}
	u, err := home.Upload(sb.Record.ID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return u, err
}

// setServerPolicy gives a server's sandbox another policy, which also says what an
// apply may write here.
func (e *env) setServerPolicy(ctx context.Context, s control.Server, sb control.Sandbox, rules []policy.Rule) error {
	if err := s.SetPolicy(ctx, string(sb.Record.ID), rules); err != nil {
		return err
	}
	u, err := e.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.SetRules(rules)
}

// applyAllOnServer is applyAll for a server's sandbox.
func (e *env) applyAllOnServer(ctx context.Context, s control.Server, m *made) error {
	now, err := s.Sandbox(ctx, string(m.Record.ID))
	if err != nil {
		return err
	}
	reviewed := ""
	if now.Status == control.Running {
		if reviewed, err = digestOnServer(ctx, s, now, nil); err != nil {
			return err
		}
	}
	p := e.progress("applying")
	result, err := e.applyOnServer(ctx, s, now, nil, false, reviewed, p)
	p.stop()
	return e.tellAppliedAll(result, err)
}

// applyOnServer brings changes of a server's sandbox into the directory that was
// uploaded for it, and then into the codebase, which is the same again; or into
// the codebase alone, if no directory was uploaded from here. Progress is shown on
// p.
func (e *env) applyOnServer(ctx context.Context, s control.Server, sb control.Sandbox, paths []vpath.Path, dryRun bool, reviewed string, p *progress) (sandbox.ApplyResult, error) {
	u, err := e.uploadOf(sb)
	if err != nil {
		return sandbox.ApplyResult{}, err
	}
	if u == nil {
		result, err := s.Apply(ctx, sb, paths, dryRun, reviewed)
		if n := result.Count(sandbox.Applied); err == nil && n > 0 && !dryRun {
			p.stop()
			e.say("%s in codebase %[2]s now; no directory was uploaded from here: agentfense codebase pull %[2]s DIR", plural(n, "change"), sb.Record.Served.CodebaseID)
		}
		return result, err
	}
	if reviewed == "" { // so that both get the same
		if reviewed, err = digestOnServer(ctx, s, sb, paths); err != nil {
			return sandbox.ApplyResult{}, err
		}
	}
	fetch := func(put func(sandbox.CarriedChange, io.Reader) error) error {
		return s.Changes(ctx, sb, paths, reviewed, put)
	}
	result, err := u.Apply(ctx, sb.Record.Name, fetch, dryRun, p.count)
	if dryRun {
		return result, err
	}
	return result, errors.Join(err, settleOnServer(ctx, s, sb, paths, reviewed, &result))
}

// settleOnServer has the server bring into the codebase what the directory has now.
func settleOnServer(ctx context.Context, s control.Server, sb control.Sandbox, paths []vpath.Path, reviewed string, result *sandbox.ApplyResult) error {
	var done []vpath.Path
	left := map[vpath.Path]bool{} // what is not here, and what it is in
	for _, r := range result.Paths {
		switch r.Outcome {
		case sandbox.Applied, sandbox.Present:
			done = append(done, r.Path)
		case sandbox.ChangedSinceReview, sandbox.Kept: // the server leaves them out, too
		default:
			left[r.Path] = true
			for dir := range r.Path.Ancestors() {
				left[dir] = true
			}
		}
	}
	if len(done) == 0 {
		return nil
	}
	if len(left) > 0 { // a directory would stand for all that is in it
		paths = slices.DeleteFunc(done, func(p vpath.Path) bool { return left[p] })
	}
	settled, err := s.Apply(context.WithoutCancel(ctx), sb, paths, false, reviewed)
	if err != nil {
		return fault.New(fault.KindOf(err), "codebase %s: it does not have yet what was applied here: %w", sb.Record.Served.CodebaseID, err)
	}
	result.Changed = settled.Changed
	return nil
}

// saySynced says, where nothing waits in a server's sandbox, that its changes are
// in the codebase already: which ones its audit log tells.
func (e *env) saySynced(ctx context.Context, s control.Server, sb control.Sandbox) error {
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
