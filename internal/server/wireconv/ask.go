package wireconv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/id"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/granted"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// The bounds of how long a refusal waits for an answer, and a call for a change of what waits.
const (
	leastAskTimeout = time.Second
	mostAskTimeout  = time.Hour
	MaxAskWait      = time.Minute
)

// requestAskTimeout reads how long refusals wait; nil: they do not wait. Errors: Invalid.
func requestAskTimeout(d *durationpb.Duration) (*record.Ask, error) {
	t, err := requestDuration("ask_timeout", d)
	switch {
	case err != nil || t == 0:
		return nil, err
	case t < leastAskTimeout || t > mostAskTimeout:
		return nil, errdefs.New(errdefs.Invalid, "ask_timeout: %s is not between %s and %s", t, leastAskTimeout, mostAskTimeout)
	}
	return &record.Ask{Timeout: record.Duration(t)}, nil
}

// EncodeAskTimeout returns how long refusals wait; absent if they do not wait.
func EncodeAskTimeout(a *record.Ask) *durationpb.Duration {
	if a == nil {
		return nil
	}
	return durationpb.New(time.Duration(a.Timeout))
}

func decodeAskTimeout(d *durationpb.Duration) *record.Ask {
	if d == nil {
		return nil
	}
	return &record.Ask{Timeout: record.Duration(d.AsDuration())}
}

// ListAsks asks for what waits for an answer.
type ListAsks struct {
	Sandbox id.Sandbox
	Wait    time.Duration
	Version string
}

// DecodeListAsks reads a request.
func DecodeListAsks(r *sandboxv1.ListAsksRequest) (l ListAsks, err error) {
	l.Version = r.GetVersion()
	if l.Sandbox, err = SandboxID(r); err != nil {
		return l, err
	}
	if l.Wait, err = requestDuration("wait", r.GetWait()); err == nil && l.Wait > MaxAskWait {
		err = errdefs.New(errdefs.Invalid, "wait: %s is longer than %s", l.Wait, MaxAskWait)
	}
	return l, err
}

// AskVersion identifies a list of asks; "" is that of an empty one.
func AskVersion(asks []api.Ask) string {
	if len(asks) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, a := range asks {
		fmt.Fprintln(sum, a.ID, a.Since.UnixNano(), a.Waiting)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// EncodeAsks returns what waits for an answer. It returns a preset's pattern as it was written.
func EncodeAsks(asks []api.Ask) *sandboxv1.ListAsksResponse {
	answer := &sandboxv1.ListAsksResponse{Version: AskVersion(asks)}
	for _, a := range asks {
		answer.Asks = append(answer.Asks, &sandboxv1.Ask{
			Id: a.ID, ExecId: a.Exec, Mount: a.Mount, Path: a.Path, Permission: Permission.Encode(a.Permission), Needed: Permission.Encode(a.Need),
			Operation: a.Operation, Rule: secretname.Written(a.Rule), Host: vpath.EncodeText(a.Host), Pid: int32(a.PID), Program: a.Program,
			Since: encodeTime(a.Since), Until: encodeTime(a.Until), Waiting: int32(a.Waiting),
		})
	}
	return answer
}

// DecodeAsks is the reverse of EncodeAsks.
func DecodeAsks(m *sandboxv1.ListAsksResponse) []api.Ask {
	var asks []api.Ask
	for _, a := range m.GetAsks() {
		asks = append(asks, api.Ask{
			ID: vpath.Escape(a.Id), Exec: vpath.Escape(a.ExecId), Mount: vpath.Escape(a.Mount), Path: a.Path, Permission: Permission.Decode(a.Permission), Need: Permission.Decode(a.Needed),
			Operation: vpath.Escape(a.Operation), Rule: a.Rule, Host: vpath.DecodeText(a.Host), PID: int(a.Pid), Program: a.Program,
			Since: decodeTime(a.Since), Until: decodeTime(a.Until), Waiting: int(a.Waiting),
		})
	}
	return asks
}

// AnswerAsk answers an ask.
type AnswerAsk struct {
	Sandbox id.Sandbox
	Answer  api.Answer
}

// DecodeAnswerAsk reads a request.
func DecodeAnswerAsk(r *sandboxv1.AnswerAskRequest) (a AnswerAsk, err error) {
	if a.Sandbox, err = SandboxID(r); err != nil {
		return a, err
	}
	if err = required("ask_id", r.GetAskId()); err != nil {
		return a, err
	}
	a.Answer = api.Answer{ID: r.GetAskId(), Allow: r.GetAllow()}
	a.Answer.Scope, err = AskScope.Parse("scope", r.GetScope())
	return a, err
}

// GrantPath grants a path, or takes its grants back.
type GrantPath struct {
	Sandbox id.Sandbox
	Change  granted.Change
}

// DecodeGrantPath reads a request.
func DecodeGrantPath(r *sandboxv1.GrantPathRequest) (g GrantPath, err error) {
	if g.Sandbox, err = SandboxID(r); err != nil {
		return g, err
	}
	if err = required("path", r.GetPath()); err != nil {
		return g, err
	}
	if g.Change.Path, err = requestPath("path", r.GetPath()); err != nil {
		return g, err
	}
	g.Change.Dir = r.GetDirectory()
	if g.Change.Permission, err = Permission.Parse("permission", r.GetPermission()); err != nil {
		return g, err
	}
	if g.Change.For, err = requestDuration("grant_for", r.GetGrantFor()); err != nil {
		return g, err
	}
	switch isGrant := g.Change.Permission != policy.None || g.Change.For != 0; {
	case r.GetRevoke() && isGrant:
		err = errdefs.New(errdefs.Invalid, "revoke: excludes permission and grant_for")
	case !r.GetRevoke() && g.Change.Permission == policy.None:
		err = errdefs.New(errdefs.Invalid, "permission: want PERMISSION_VIEW, PERMISSION_READ or PERMISSION_WRITE")
	case g.Change.For != 0 && g.Change.For < time.Second:
		err = errdefs.New(errdefs.Invalid, "grant_for: %s is shorter than a second", g.Change.For)
	}
	return g, err
}

// encodeGrants returns the grants of paths.
func encodeGrants(all []granted.Path) []*sandboxv1.PathGrant {
	var out []*sandboxv1.PathGrant
	for _, g := range all {
		out = append(out, &sandboxv1.PathGrant{Path: g.Path.Text(), Directory: g.Dir, Permission: Permission.Encode(g.Permission), Until: encodeTime(g.Until)})
	}
	return out
}

// decodeGrants is the reverse of encodeGrants. Errors: Internal.
func decodeGrants(sent []*sandboxv1.PathGrant) ([]granted.Path, error) {
	var all []granted.Path
	for _, g := range sent {
		p, err := decodePath(g.Path)
		if err != nil {
			return nil, err
		}
		all = append(all, granted.Path{Path: p, Dir: g.Directory, Permission: Permission.Decode(g.Permission), Until: decodeTime(g.Until)})
	}
	return all, nil
}
