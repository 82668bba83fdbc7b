package cli

import (
	"fmt"
	"time"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// describeAsk says what was asked, and how that ended.
func describeAsk(ev audit.Event) string {
	switch v := ev.(type) {
	case audit.ApplyRequested:
		return fmt.Sprintf("%s, as shown by %s: %s", plural(v.Changes, "change"), vpath.Escape(v.Digest), escape(v.Message))
	case audit.AccessAsked:
		if v.Operation == api.OperationRequest {
			return fmt.Sprintf("%s %s, requested: %s", vpath.Escape(v.Ask), askedText(v.Mount, v.Path, v.Need, v.Host), vpath.Quote(string(v.Reason)))
		}
		return fmt.Sprintf("%s %s, program %s", vpath.Escape(v.Ask), askedText(v.Mount, v.Path, v.Need, v.Host), vpath.Quote(string(v.Program)))
	case audit.AccessAnswered:
		answer := "denied"
		if v.Allowed {
			answer = "allowed"
		}
		if v.Scope != "" {
			answer += " (" + vpath.Escape(v.Scope) + ")"
		}
		waited := time.Duration(v.WaitedMS) * time.Millisecond
		return fmt.Sprintf("%s %s: %s by %s after %s", vpath.Escape(v.Ask), askedText(v.Mount, v.Path, v.Need, v.Host), answer, escape(v.By), waited)
	case audit.LocksChanged:
		return describeLocks(v)
	case audit.MessagePosted:
		return fmt.Sprintf("message %d by the %s in %s, %s", v.Seq, vpath.Escape(v.By), vpath.Escape(v.Topic), plural(v.Bytes, "byte"))
	case audit.AsksSuppressed:
		return fmt.Sprintf("%s denied without asking: too many", plural(v.Count, "ask"))
	}
	return ""
}

// askedText says what is asked for.
func askedText(mount string, p audit.Path, need string, host audit.Text) string {
	if host != "" {
		return "host " + escape(host)
	}
	path := vpath.Escape(string(p))
	if mount != "" {
		path = vpath.Escape(mount) + ":" + path
	}
	return vpath.Escape(need) + " " + path
}
