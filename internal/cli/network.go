package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/cli/present"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// maxHostsSaid is how many hosts a line of the summary names.
const maxHostsSaid = 5

// usualRefusal is the reason of a refusal that needs no words: no rule names the host.
const usualRefusal = "not in the allowlist"

// sayNetwork says which hosts were reached, and what was refused, on one line. It says nothing of
// a sandbox that tried nothing.
func (e *env) sayNetwork(s present.Summary) {
	var parts []string
	if len(s.Hosts) > 0 {
		var used []string
		for _, h := range s.Hosts {
			used = append(used, hostText(h))
		}
		parts = append(parts, fewHosts(used))
	}
	if len(s.Ports) > 0 {
		var used []string
		for _, p := range s.Ports {
			used = append(used, portText(p))
		}
		parts = append(parts, "published: "+fewHosts(used))
	}
	if len(s.HostRefusals) > 0 {
		var refused []string
		for _, r := range s.HostRefusals {
			refused = append(refused, refusalText(r))
		}
		parts = append(parts, "refused: "+fewHosts(refused))
	}
	if len(parts) > 0 {
		e.say("network: %s", strings.Join(parts, "; "))
	}
}

// fewHosts joins the first of a list, and says how many more there are.
func fewHosts(list []string) string {
	if more := len(list) - maxHostsSaid; more > 0 {
		list = append(list[:maxHostsSaid:maxHostsSaid], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

func hostText(h present.HostUse) string {
	if h.Connections == 0 {
		return fmt.Sprintf("%s not reached (%d: %s)", vpath.Escape(h.Host), h.Failed, vpath.Escape(h.Failure))
	}
	made := plural(h.Connections, "connection")
	if h.Requests > 0 {
		made = plural(int(h.Requests), "request")
	}
	text := fmt.Sprintf("%s %s, %s out, %s in", vpath.Escape(h.Host), made, formatBytes(h.SentBytes), formatBytes(h.ReceivedBytes))
	if h.ByProxy {
		text += ", resolved by the proxy"
	}
	if h.Failed > 0 {
		text += fmt.Sprintf(", not reached %s (%s)", times(h.Failed), vpath.Escape(h.Failure))
	}
	return text
}

func portText(p present.PortUse) string {
	text := fmt.Sprintf("%s:%d", p.Address, p.HostPort)
	if p.Connections > 0 {
		text += fmt.Sprintf(" %s, %s out, %s in", plural(p.Connections, "connection"), formatBytes(p.SentBytes), formatBytes(p.ReceivedBytes))
	}
	if p.Failed > 0 {
		text += fmt.Sprintf(" not passed on (%d: %s)", p.Failed, escape(p.Failure))
	}
	return text
}

func refusalText(r present.HostRefusal) string {
	if r.Socket != "" {
		return fmt.Sprintf("%s (%d)", vpath.Escape(r.Socket), r.Count)
	}
	text := vpath.Escape(r.Host)
	if r.Port != 0 {
		text += fmt.Sprintf(":%d", r.Port)
	}
	if r.Protocol != "" {
		text += "/" + vpath.Escape(r.Protocol)
	}
	if r.Reason == usualRefusal {
		return fmt.Sprintf("%s (%d)", text, r.Count)
	}
	return fmt.Sprintf("%s (%d: %s)", text, r.Count, vpath.Escape(r.Reason))
}

// networkLook remembers where the audit log was when a command began, of a sandbox that may have
// a network of named hosts. Its zero value has nothing to say.
type networkLook struct {
	sb    backend.Sandbox
	after uint64
	named bool
	err   error // why after is not known
}

// lookAtNetwork begins to look.
func lookAtNetwork(ctx context.Context, b backend.Backend, sb backend.Sandbox) networkLook {
	if sb.Record.Net != record.NetNamed {
		return networkLook{}
	}
	after, err := lastSeq(ctx, b, sb)
	return networkLook{sb: sb, after: after, named: true, err: err}
}

// say says what was reached and refused meanwhile, by whichever command of the sandbox, or why
// that is not known.
func (l networkLook) say(ctx context.Context, e *env, b backend.Backend) {
	if !l.named {
		return
	}
	n, err := l.sum(ctx, b)
	if err != nil {
		e.say("network: what was reached is not known: %v", err)
		return
	}
	e.sayNetwork(present.Summary{Hosts: n.Used(), HostRefusals: n.Refused(), Ports: n.Ports()})
}

func (l networkLook) sum(ctx context.Context, b backend.Backend) (present.NetworkSum, error) {
	var n present.NetworkSum
	if l.err != nil {
		return n, l.err
	}
	err := b.Audit(ctx, l.sb.Ref(), l.after, false, func(r audit.Record) error {
		n.Add(r)
		return nil
	})
	return n, err
}
