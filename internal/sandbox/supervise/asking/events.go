package asking

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// pathOf is the path of an ask, and the permission that it needs; empty for a host.
func pathOf(a api.Ask) (p audit.Path, need string) {
	if a.Need == policy.None {
		return "", ""
	}
	return audit.Path("/" + vpath.DecodeText(a.Path)), a.Need.String()
}

func askedEvent(a api.Ask) audit.AccessAsked {
	path, need := pathOf(a)
	return audit.AccessAsked{
		Ask: a.ID, Exec: a.Exec, Mount: a.Mount, Path: path, Need: need, Host: audit.Text(a.Host), Operation: a.Operation,
		Rule: audit.Text(vpath.DecodeText(a.Rule)), PID: a.PID, Program: audit.Text(vpath.DecodeText(a.Program)),
		Reason: audit.Text(vpath.DecodeText(a.Reason)),
	}
}

func answeredEvent(p *ask, r Result, by string, now time.Time) audit.AccessAnswered {
	path, need := pathOf(p.Ask)
	return audit.AccessAnswered{
		Ask: p.ID, Exec: p.Exec, Mount: p.Mount, Path: path, Need: need, Host: audit.Text(p.Host),
		Allowed: r.Allowed, Scope: string(r.Scope), By: audit.Text(by), WaitedMS: now.Sub(p.Since).Milliseconds(),
	}
}
