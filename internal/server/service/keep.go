package service

import (
	"context"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/sandbox/keep"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/server/wireconv"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// The notes of a result, for what waits.
const (
	noteHeld  = "a caller without the scope apply ran a command in the sandbox: Apply applies the changes"
	noteBusy  = "other commands run: the end of the last one applies what rules with apply: keep match"
	noteError = "it cannot be applied now: the end of the next command tries again, and the server's log has the reason"
)

// keepingMounts are the mounts of a sandbox that have rules with apply: keep.
func keepingMounts(sb *record.Sandbox) []*record.Sandbox {
	return slices.DeleteFunc(sb.Parts(), func(part *record.Sandbox) bool {
		return part.Mount() == "" || !policy.Keeps(part.Stored.Rules)
	})
}

// keepAfter applies what rules with apply: keep match in the mounts of a sandbox, when a command
// has ended (docs/adr/0048). It returns nil if no mount has such a rule. What cannot be applied
// stays in the sandbox and is no error of the command.
//
// The configuration permits it for each root, and is asked again. A sync that is held holds this,
// too: the server cannot tell which process wrote what.
func (s *Service) keepAfter(ctx context.Context, sb *record.Sandbox) *wireconv.Keep {
	parts := keepingMounts(sb)
	if len(parts) == 0 {
		return nil
	}
	defer s.syncs.lock(string(sb.ID()))()
	k := &wireconv.Keep{}
	busy, err := isBusy(ctx, sb)
	held, heldErr := sb.IsSyncHeld()
	switch {
	case err != nil || heldErr != nil:
		s.log.WarnContext(ctx, "keep: cannot look at the sandbox", "sandbox", sb.ID(), "err", err, "hold", heldErr)
		k.Note = noteError
		return k
	case held:
		k.Note = noteHeld
		return k
	case busy:
		k.Note = noteBusy
		return k
	}
	failpoint.At("keep: permitted")
	for _, part := range parts {
		if err := s.keepIn(ctx, sb, part, k); err != nil {
			s.log.WarnContext(ctx, "keep: cannot apply", "sandbox", sb.ID(), "mount", part.Mount(), "err", err)
			k.Note = noteError
		}
	}
	if !mayKnowPolicy(ctx) {
		for i := range k.NotKept {
			k.NotKept[i].Reason = "it waits for a review"
		}
	}
	return k
}

// isBusy reports whether a command runs in the sandbox. What it is writing may be incomplete. The
// shell of a session does not count while no command of the session runs.
func isBusy(ctx context.Context, sb *record.Sandbox) (bool, error) {
	client, err := api.Dial(ctx, sb.Dir())
	var now api.Stats
	if err == nil {
		now, err = client.Stats(ctx)
	}
	if errdefs.Is(err, errdefs.NotFound) || errdefs.Is(err, errdefs.Unavailable) {
		return false, nil // stopped, perhaps meanwhile
	}
	return now.Execs > 0, err
}

// keepIn is keepAfter for one mount. It adds what it did to k.
func (s *Service) keepIn(ctx context.Context, sb, part *record.Sandbox, k *wireconv.Keep) error {
	if err := s.permitKeep(part); err != nil {
		return err
	}
	drop, err := api.DropLive(ctx, sb.Dir(), part.Mount())
	if err != nil {
		return err
	}
	result, err := keep.Keep(ctx, part, drop)
	for _, p := range result.Kept {
		k.Kept = append(k.Kept, wireconv.KeptPath{Mount: part.Mount(), Path: p.Path, Keys: p.Keys})
	}
	for _, p := range result.Waits {
		reason := withoutSources(ctx, sb, errdefs.New(errdefs.Precondition, "%s", p.Why)).Error()
		k.NotKept = append(k.NotKept, wireconv.KeptPath{Mount: part.Mount(), Path: p.Path, Keys: p.Keys, Reason: reason})
	}
	k.KeptCount, k.NotKeptCount = int64(len(k.Kept)), int64(len(k.NotKept))
	return err
}

// permitKeep refuses to apply changes to the source of a mount without a review, unless the
// configuration permits it now. Errors: Denied.
func (s *Service) permitKeep(part *record.Sandbox) error {
	if err := s.permitApply(part); err != nil {
		return err
	}
	r := part.Record()
	if root, ok := s.config.RootOf(string(r.Source.Path), r.Served.OwnerID); !ok || !root.Keep {
		return errdefs.New(errdefs.Denied, "mount %s: the configuration does not permit apply: keep there (keep in mounts.roots)", part.Mount())
	}
	return nil
}

// cutKept cuts the lists of a result, as those of conflicts.
func cutKept(k *wireconv.Keep) *wireconv.Keep {
	if k == nil {
		return nil
	}
	cut, room := *k, maxConflictBytes/2
	size := func(p wireconv.KeptPath) int {
		return len(p.Path.Text()) + len(p.Reason) + len(strings.Join(p.Keys, ""))
	}
	cut.Kept = fitting(k.Kept, &room, size)
	cut.NotKept = fitting(k.NotKept, &room, size)
	return &cut
}
