package remote

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/published"
	"github.com/agentfense/agentfense/internal/server/wireconv"
)

// update changes what flags say of a sandbox. The server refuses it while the sandbox runs.
func (c *Client) update(ctx context.Context, known backend.Sandbox, r backend.Reopening) (backend.Sandbox, error) {
	if !r.Given("memory", "cpus", "pids", "disk", "scratch", "secret", "net-limit", "publish", "ask", "ask-timeout") {
		return known, nil
	}
	n := r.New
	m := &sandboxv1.UpdateSandboxRequest{
		SandboxId: string(known.Record.ID), Scratch: scratchOf(n.Scratch), Secrets: n.ServerSecrets,
		NetLimits: wireconv.EncodeNetLimits(n.NetLimits), Publish: (&published.Ports{Publish: n.Publish}).Texts(),
	}
	for _, list := range []struct {
		flag string
		sent *[]string
		name string
	}{
		{"scratch", &m.Scratch, wireconv.ListScratch},
		{"secret", &m.Secrets, wireconv.ListSecrets},
		{"net-limit", &m.NetLimits, wireconv.ListNetLimits},
		{"publish", &m.Publish, wireconv.ListPublish},
	} {
		switch {
		case !r.Given(list.flag):
			*list.sent = nil // a project's file may name some
		case len(*list.sent) == 0:
			m.Clear = append(m.Clear, list.name)
		}
	}
	if r.Given("ask", "ask-timeout") {
		if m.AskTimeout = wireconv.EncodeAskTimeout(n.Ask); m.AskTimeout == nil {
			m.AskTimeout = durationpb.New(0)
		}
	}
	if r.Given("memory", "cpus", "pids", "disk") {
		limits := known.Record.Limits
		for _, limit := range []struct {
			flag string
			set  func()
		}{
			{"memory", func() { limits.MemoryBytes = n.Limits.MemoryBytes }},
			{"cpus", func() { limits.CPUs = n.Limits.CPUs }},
			{"pids", func() { limits.PIDs = n.Limits.PIDs }},
			{"disk", func() { limits.DiskBytes = n.Limits.DiskBytes }},
		} {
			if r.Given(limit.flag) {
				limit.set()
			}
		}
		limits.Timeout = 0 // the command has it
		m.Resources = wireconv.EncodeLimits(limits)
	}
	got, err := c.sandboxes.UpdateSandbox(ctx, m)
	if err != nil {
		return known, c.failed(err)
	}
	return sandboxOf(got)
}
