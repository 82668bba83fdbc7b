package mcpserver

import (
	"context"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/policy"
)

type askInput struct {
	Path       string `json:"path,omitempty" jsonschema:"path of one file, relative to the project directory"`
	Permission string `json:"permission,omitempty" jsonschema:"read or write; only with path"`
	Host       string `json:"host,omitempty" jsonschema:"name of one host, such as api.example.com, in place of a path; its port 443 is asked for"`
	Reason     string `json:"reason" jsonschema:"why the task needs it, in a sentence for the user"`
}

// ask is the tool of that name. It grants nothing: the supervisor puts the question beside the
// refusals that wait, and a person, or the hook that a person has named, answers outside.
func (s *service) ask(ctx context.Context, request *mcp.CallToolRequest, in askInput) (*mcp.CallToolResult, any, error) {
	a, what, err := s.readAsk(in)
	if err != nil {
		return nil, nil, err
	}
	sb, _, err := s.sb.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	if sb.Record.Ask == nil {
		return nil, nil, errdefs.New(errdefs.Precondition, "this sandbox does not ask: the user must start the server with --ask; the user can grant access with agentfense policy grant %s", sb.Record.Name)
	}
	p := progressOf(ctx, request)
	d, err := s.o.RequestAccess(ctx, sb.Ref(), a)
	p.end()
	if err != nil {
		return nil, nil, err
	}
	return textResult(decisionText(d, what)), nil, nil
}

// readAsk returns what is asked for, and its text for the model.
func (s *service) readAsk(in askInput) (a api.Ask, what string, err error) {
	reason := strings.TrimSpace(in.Reason)
	a.Reason = vpath.EncodeText(reason)
	switch {
	case reason == "" || len(a.Reason) > api.MaxReason:
		return a, "", errdefs.New(errdefs.Invalid, "reason: want a sentence of at most %d bytes", api.MaxReason)
	case (in.Path == "") == (in.Host == ""):
		return a, "", errdefs.New(errdefs.Invalid, "want path and permission, or host")
	case in.Host != "" && in.Permission != "":
		return a, "", errdefs.New(errdefs.Invalid, "permission: only with path")
	case in.Host != "":
		a.Host = in.Host
		return a, "connections to " + vpath.Quote(in.Host), nil
	}
	path, err := s.path(in.Path)
	if err == nil && path.IsRoot() {
		err = errdefs.New(errdefs.Invalid, "path: want one file of the project, not the whole")
	}
	if err != nil {
		return a, "", err
	}
	if a.Need, err = policy.ParsePermission(in.Permission); err != nil || a.Need < policy.Read {
		return a, "", errdefs.New(errdefs.Invalid, "permission %s: want read or write", vpath.Quote(in.Permission))
	}
	a.Path = path.Text()
	return a, fmt.Sprintf("%s of %s", a.Need, path), nil
}

// decisionText tells a model what became of its request.
func decisionText(d api.Decision, what string) string {
	switch {
	case d.Permitted:
		return "permitted already: " + what
	case d.Suppressed:
		return "refused, and the user was not asked: the same was refused before, or too many questions wait. Go on without " + what
	case !d.Allowed:
		return "refused, or not answered in time. Do not ask again; go on without " + what
	case d.Scope == api.ScopeOnce:
		return fmt.Sprintf("allowed for %d minutes: %s", int(api.OnceTime.Minutes()), what)
	}
	return "allowed in this sandbox: " + what
}
