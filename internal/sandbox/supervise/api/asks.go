package api

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Ask is a refusal that waits for an answer: of a path that the view shows, or of a host. The
// process that was refused waits too. With Requested it is no refusal: a client asks for access in
// advance, and no process waits.
type Ask struct {
	ID   string `json:"id"`
	Exec string `json:"exec,omitempty"` // the command, as in the audit log
	// Path is what was opened in the workspace, or in the mount with the name Mount, as
	// vpath.Path.Text returns it; empty for a host.
	Mount string `json:"mount,omitempty"`
	Path  string `json:"path,omitempty"`
	// Permission is that of the path, Need what would have allowed the operation.
	Permission policy.Permission `json:"permission,omitempty"`
	Need       policy.Permission `json:"need,omitempty"`
	Operation  string            `json:"operation,omitempty"`
	Rule       string            `json:"rule,omitempty"` // pattern, as vpath.EncodeText returns it; empty: no rule
	// Host is a name that no rule allows; empty for a path. What is granted is the port 443.
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Program string    `json:"program,omitempty"` // as vpath.EncodeText returns it
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`             // then it is denied
	Waiting int       `json:"waiting,omitempty"` // how many processes wait for this answer
	// Requested says that a client asks, and Reason what it says, as vpath.EncodeText returns it.
	Requested bool   `json:"requested,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// Scope says for how long an answer counts.
type Scope string

// The scopes. An ask that is denied once may be asked again; with another scope of a denial, and
// for a short time in any case, it is not.
const (
	// ScopeOnce allows the opens that wait, and those of the same moment. It allows a host, and
	// what was requested, for OnceTime.
	ScopeOnce Scope = "once"
	// ScopeSandbox changes the policy of the sandbox, or the hosts that it may reach.
	ScopeSandbox Scope = "sandbox"
	// ScopeProject is ScopeSandbox for the supervisor. The client stores the same in the rules of
	// the user for the project (package userrules), for other sandboxes. It is for no denial.
	ScopeProject Scope = "project"
)

// OnceTime is for how long ScopeOnce allows what no process waits for.
const OnceTime = 10 * time.Minute

// OperationRequest is the Operation of a request.
const OperationRequest = "request"

// MaxReason bounds the reason of a request, in bytes.
const MaxReason = 300

// Decision is what became of a request.
type Decision struct {
	Allowed bool  `json:"allowed,omitempty"`
	Scope   Scope `json:"scope,omitempty"`
	// Both say that no person was asked. Permitted: it is allowed already. Suppressed: the same was
	// denied before, or too many asks wait.
	Permitted  bool `json:"permitted,omitempty"`
	Suppressed bool `json:"suppressed,omitempty"`
}

// Request asks for access, and waits for the answer until ctx ends. a has Path and Need, or Host,
// and Reason. Errors: Precondition, if the sandbox does not ask, or has no network of named hosts;
// Denied, for what no answer allows; Invalid; Unavailable, if the sandbox stops.
func (c *Client) Request(ctx context.Context, a Ask) (Decision, error) {
	w, err := c.stream(ctx, Request{Op: OpAsk, Ask: &a})
	if err != nil {
		return Decision{}, err
	}
	defer w.Close()
	answer, err := w.next(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return Decision{}, errdefs.New(errdefs.Unavailable, "the sandbox has stopped")
	case err != nil:
		return Decision{}, err
	case answer.Error != nil:
		return Decision{}, answer.Error.Err()
	case answer.Decision == nil:
		return Decision{}, errdefs.New(errdefs.Internal, "supervisor: unexpected answer to ask")
	}
	return *answer.Decision, nil
}

// Answer answers an ask.
type Answer struct {
	ID    string `json:"id"`
	Allow bool   `json:"allow"`
	Scope Scope  `json:"scope,omitempty"` // empty: ScopeOnce
	// By says, for the audit log, who answered: "terminal", "policy ask", "hook", "api".
	By string `json:"by,omitempty"`
}

// Check refuses an answer that means nothing. Errors: Invalid.
func (a Answer) Check() error {
	switch a.Scope {
	case "", ScopeOnce, ScopeSandbox:
		return nil
	case ScopeProject:
		if a.Allow {
			return nil
		}
		return errdefs.New(errdefs.Invalid, "answer: a denial is not stored for the project: want scope once or sandbox")
	}
	return errdefs.New(errdefs.Invalid, "answer: unknown scope %q: want once, sandbox or project", a.Scope)
}

// IsSame reports whether a and b are one ask, as it was listed at two times. An id alone is not
// enough: a sandbox that was started again counts from one.
func (a Ask) IsSame(b Ask) bool {
	sameTimes := a.Since.Equal(b.Since) && a.Until.Equal(b.Until)
	a.Waiting, a.Since, a.Until = b.Waiting, b.Since, b.Until
	return a == b && sameTimes
}

// Asks lists what waits for an answer, the oldest first. Errors: Precondition, if the sandbox does
// not ask.
func (c *Client) Asks(ctx context.Context) ([]Ask, error) {
	answer, err := c.call(ctx, Request{Op: OpAsks})
	return answer.Asks, err
}

// Answer answers an ask. Errors: NotFound, if it waits no longer; Invalid; Precondition.
func (c *Client) Answer(ctx context.Context, a Answer) error {
	_, err := c.call(ctx, Request{Op: OpAnswer, Answer: &a})
	return err
}

// AskWatch tells what waits for an answer.
type AskWatch struct{ *stream }

// WatchAsks has told what waits for an answer, until ctx ends. Errors: as Asks.
func (c *Client) WatchAsks(ctx context.Context) (AskWatch, error) {
	w, err := c.stream(ctx, Request{Op: OpWatchAsks})
	return AskWatch{w}, err
}

// Next waits for a change and returns all that waits for an answer then. The first call returns at
// once. It is io.EOF once the sandbox has stopped. Errors: Canceled.
func (w AskWatch) Next(ctx context.Context) ([]Ask, error) {
	answer, err := w.next(ctx)
	return answer.Asks, err
}
