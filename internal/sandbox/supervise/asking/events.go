package asking

import (
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

func thing(a api.Ask) audit.AskedThing {
	what := audit.AskedThing{Ask: a.ID, Exec: a.Exec, Mount: a.Mount, Host: audit.Text(a.Host)}
	if a.Host == "" {
		what.Path = audit.Path("/" + vpath.DecodeText(a.Path))
	}
	if a.Need > policy.None {
		what.Need = a.Need.String()
	}
	return what
}

func askedEvent(a api.Ask) audit.AccessAsked {
	return audit.AccessAsked{
		AskedThing: thing(a), Operation: a.Operation, Rule: audit.Text(vpath.DecodeText(a.Rule)),
		PID: a.PID, Program: audit.Text(vpath.DecodeText(a.Program)),
	}
}

func answeredEvent(p *ask, r Result, by string, now time.Time) audit.AccessAnswered {
	return audit.AccessAnswered{
		AskedThing: thing(p.Ask), Allowed: r.Allowed, Scope: string(r.Scope), By: audit.Text(by),
		WaitedMS: now.Sub(p.Since).Milliseconds(),
	}
}
