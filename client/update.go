package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
)

// Update is what Sandbox.Update changes. A nil field stays as it is; an empty list has no entries.
type Update struct {
	Resources *ResourceLimits // all limits
	Scratch   []string        // as WithScratch
	Secrets   []string        // as WithSecrets
	NetLimits []string        // as WithNetLimits
	Publish   []string        // as WithPublish
	Ask       *time.Duration  // as WithAsk; 0: refusals do not wait
}

// Update changes what a stopped sandbox has from its next start on. Errors: ErrAlreadyRunning;
// those of CreateSandbox for a value, and then nothing has changed.
func (s *Sandbox) Update(ctx context.Context, u Update) (SandboxInfo, error) {
	r := &sandboxv1.UpdateSandboxRequest{SandboxId: s.ID, Scratch: encoded(u.Scratch), Secrets: u.Secrets, NetLimits: u.NetLimits, Publish: u.Publish}
	if u.Ask != nil {
		r.AskTimeout = durationpb.New(*u.Ask)
	}
	if u.Resources != nil {
		r.Resources = limitsOf(*u.Resources)
	}
	for _, list := range []struct {
		name  string
		given []string
	}{{"scratch", u.Scratch}, {"secrets", u.Secrets}, {"net_limits", u.NetLimits}, {"publish", u.Publish}} {
		if list.given != nil && len(list.given) == 0 {
			r.Clear = append(r.Clear, list.name)
		}
	}
	sb, err := s.c.sandboxes.UpdateSandbox(ctx, r)
	if err != nil {
		return SandboxInfo{}, s.c.fail(ctx, "update sandbox", err)
	}
	return infoFrom(sb), nil
}
