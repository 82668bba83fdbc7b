package errdefs

import (
	"errors"
	"slices"
)

// Reason distinguishes errors of one kind, for programs; text is for people. A server sends it in a
// google.rpc.ErrorInfo with the domain ReasonDomain (docs/rest.md).
type Reason string

// ReasonDomain is the domain of the reasons.
const ReasonDomain = "agentfense"

// The reasons. Every SDK distinguishes them.
const (
	SandboxNotFound   Reason = "SANDBOX_NOT_FOUND"
	CodebaseNotFound  Reason = "CODEBASE_NOT_FOUND"
	SessionNotFound   Reason = "SESSION_NOT_FOUND"
	ExecNotFound      Reason = "EXEC_NOT_FOUND"
	SandboxNotRunning Reason = "SANDBOX_NOT_RUNNING" // with "status", as in SandboxStatus
	SandboxRunning    Reason = "SANDBOX_ALREADY_RUNNING"
	SessionClosed     Reason = "SESSION_CLOSED"
	LimitExceeded     Reason = "LIMIT_EXCEEDED" // with "resource" and "limit"
	CommandNotStarted Reason = "COMMAND_NOT_STARTED"
)

var reasons = []Reason{
	SandboxNotFound, CodebaseNotFound, SessionNotFound, ExecNotFound,
	SandboxNotRunning, SandboxRunning, SessionClosed, LimitExceeded, CommandNotStarted,
}

// Reasons returns all reasons.
func Reasons() []Reason { return slices.Clone(reasons) }

// NotFoundReason returns the reason of an object that does not exist, such as
// "sandbox"; "" for an object without a reason.
func NotFoundReason(what string) Reason {
	return map[string]Reason{
		"sandbox": SandboxNotFound, "codebase": CodebaseNotFound, "session": SessionNotFound, "exec": ExecNotFound,
	}[what]
}

// WithReason returns err with a reason. Its kind and its text stay.
func WithReason(err error, r Reason) error {
	return &reasoned{err, r}
}

type reasoned struct {
	error
	reason Reason
}

// Unwrap returns the error.
func (r *reasoned) Unwrap() error { return r.error }

// ReasonOf returns the outermost reason in err's chain, "" if there is none or if the
// error around it has another kind.
func ReasonOf(err error) Reason {
	if r, ok := errors.AsType[*reasoned](err); ok && KindOf(r) == KindOf(err) {
		return r.reason
	}
	return ""
}
