package client

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "github.com/agentfense/agentfense/api/sandbox/v1"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// PathGrant is a path of the workspace that was granted beside the rules.
type PathGrant struct {
	Path       string
	Directory  bool // with everything below it
	Permission Permission
	Until      time.Time // when it ends; zero: it has no end
}

func grantsFrom(sent []*sandboxv1.PathGrant) []PathGrant {
	var grants []PathGrant
	for _, g := range sent {
		grants = append(grants, PathGrant{vpath.DecodeText(g.Path), g.Directory, permissionFrom(g.Permission), timeFrom(g.Until)})
	}
	return grants
}

// GrantPath gives a path a permission that it lacks, at once, and returns all grants. With
// directory, it covers everything below the path. The grant ends after the time last; 0: when it is
// revoked. Errors: ErrInvalid; ErrPrecondition for a path in a scratch directory.
func (s *Sandbox) GrantPath(ctx context.Context, path string, directory bool, permission Permission, last time.Duration) ([]PathGrant, error) {
	const operation = "grant path"
	p, ok := value[sandboxv1.Permission]("PERMISSION_", string(permission), sandboxv1.Permission_value)
	if !ok || permission == "" {
		return nil, failure(operation, `unknown permission "`+string(permission)+`"`, ErrInvalid)
	}
	r := &sandboxv1.GrantPathRequest{SandboxId: s.ID, Path: first(inside(path), "/"), Directory: directory, Permission: p}
	if last != 0 {
		r.GrantFor = durationpb.New(last)
	}
	return s.changeGrants(ctx, operation, r)
}

// RevokePath takes all grants of a path back, at once, and returns the others. Errors: ErrNotFound
// for a path that was not granted.
func (s *Sandbox) RevokePath(ctx context.Context, path string, directory bool) ([]PathGrant, error) {
	return s.changeGrants(ctx, "revoke path", &sandboxv1.GrantPathRequest{SandboxId: s.ID, Path: first(inside(path), "/"), Directory: directory, Revoke: true})
}

func (s *Sandbox) changeGrants(ctx context.Context, operation string, r *sandboxv1.GrantPathRequest) ([]PathGrant, error) {
	sb, err := s.c.sandboxes.GrantPath(ctx, r)
	if err != nil {
		return nil, s.c.fail(ctx, operation, err)
	}
	return grantsFrom(sb.Grants), nil
}

// Ask is a refusal that waits for an answer. Programs inside choose its names and paths.
type Ask struct {
	ID         string
	ExecID     string // the command
	Mount      string // the mount that Path is in, in which an answer counts once; "" for the workspace
	Path       string // what was to be opened, made or changed; "" for a host
	Permission Permission
	Needed     Permission // what would have allowed the operation
	Operation  string
	Rule       string // pattern of the rule that decided; "": no rule
	Host       string // name of a host that no rule allows
	PID        int    // as the host sees it; 0: unknown
	Program    string
	Since      time.Time
	Until      time.Time // when it is refused without an answer
	Waiting    int       // number of processes that wait for the answer
}

// AskScope says for what an answer counts.
type AskScope string

// The scopes.
const (
	// AskOnce is for the opens that wait; it allows a host for ten minutes.
	AskOnce AskScope = "once"
	// AskSandbox grants the path or host to the sandbox, or does not ask again.
	AskSandbox AskScope = "sandbox"
)

// askWait is how long a call waits for a change of what waits for an answer.
const askWait = 30 * time.Second

// Asks yields what waits for an answer, the oldest first: at once, and after each change, until the
// sandbox stops, or until ctx ends, which yields an error. Errors: ErrNotRunning; ErrPrecondition
// for a sandbox without WithAsk.
func (s *Sandbox) Asks(ctx context.Context) iter.Seq2[[]Ask, error] {
	return func(yield func([]Ask, error) bool) {
		for r := (&sandboxv1.ListAsksRequest{SandboxId: s.ID}); ; {
			m, err := s.c.sandboxes.ListAsks(ctx, r)
			if err != nil {
				yield(nil, s.c.fail(ctx, "list asks", err))
				return
			}
			if (r.Wait == nil || m.Version != r.Version) && !yield(asksFrom(m), nil) {
				return
			}
			r.Wait, r.Version = durationpb.New(askWait), m.Version
		}
	}
}

func asksFrom(m *sandboxv1.ListAsksResponse) []Ask {
	var asks []Ask
	for _, a := range m.Asks {
		asks = append(asks, Ask{
			ID: a.Id, ExecID: a.ExecId, Mount: a.Mount, Path: vpath.DecodeText(a.Path), Permission: permissionFrom(a.Permission), Needed: permissionFrom(a.Needed),
			Operation: a.Operation, Rule: a.Rule, Host: vpath.DecodeText(a.Host), PID: int(a.Pid), Program: vpath.DecodeText(a.Program),
			Since: timeFrom(a.Since), Until: timeFrom(a.Until), Waiting: int(a.Waiting),
		})
	}
	return asks
}

// AnswerAsk allows or denies what waits for an answer. Errors: ErrNotFound for an ask that waits no
// longer; ErrDenied for a host that the server's configuration does not include.
func (s *Sandbox) AnswerAsk(ctx context.Context, id string, allow bool, scope AskScope) error {
	const operation = "answer ask"
	sent, ok := value[sandboxv1.AskScope]("ASK_SCOPE_", string(scope), sandboxv1.AskScope_value)
	if !ok {
		return failure(operation, `unknown scope "`+string(scope)+`"`, ErrInvalid)
	}
	_, err := s.c.sandboxes.AnswerAsk(ctx, &sandboxv1.AnswerAskRequest{SandboxId: s.ID, AskId: id, Allow: allow, Scope: sent})
	if err != nil {
		return s.c.fail(ctx, operation, err)
	}
	return nil
}
