package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/transfer/stream"
)

// The kinds of an Error.
var (
	ErrInvalid          = errors.New("invalid argument")
	ErrUnauthenticated  = errors.New("unauthenticated")
	ErrDenied           = errors.New("permission denied")
	ErrNotFound         = errors.New("not found")
	ErrSandboxNotFound  = errors.New("no such sandbox")  // also ErrNotFound
	ErrCodebaseNotFound = errors.New("no such codebase") // also ErrNotFound
	ErrSessionNotFound  = errors.New("no such session")  // also ErrNotFound
	ErrExecNotFound     = errors.New("no such exec")     // also ErrNotFound
	ErrExists           = errors.New("already exists")
	ErrAlreadyRunning   = errors.New("sandbox is already running") // also ErrPrecondition
	ErrNotRunning       = errors.New("sandbox is not running")     // also ErrPrecondition
	ErrSessionClosed    = errors.New("session is closed")          // also ErrPrecondition
	ErrPrecondition     = errors.New("failed precondition")
	ErrConflict         = errors.New("conflict with the source") // of Apply; also ErrPrecondition
	ErrExhausted        = errors.New("resource exhausted")
	ErrTimeout          = errors.New("command timed out")
	ErrCommand          = errors.New("command failed") // of ExecResult.Err alone
	ErrUnavailable      = errors.New("server unavailable")
	ErrVersion          = errors.New("version mismatch") // of server and program; the text says which to upgrade
	ErrInternal         = errors.New("internal error")
)

// Error is what a server answered, or why it did not.
type Error struct {
	Operation string // the call, such as "run"
	Message   string // the server's words
	// Conflicts are the paths of ErrConflict, as many as there was room for;
	// ApplyDryRun has all.
	Conflicts []string
	// Status is how the sandbox of ErrNotRunning stands.
	Status SandboxStatus
	// Limit is that of ErrExhausted and Resource what there may be so many of:
	// "bytes", "files", "sandboxes". 0 and "": not known.
	Limit    int64
	Resource string
	// NotStarted says of a command that it is certain that nothing of it has run.
	NotStarted bool

	kinds []error
}

func failure(operation, message string, kinds ...error) *Error {
	return &Error{Operation: operation, Message: message, kinds: kinds}
}

// Error says what failed and why.
func (e *Error) Error() string { return e.Operation + ": " + e.Message }

// Is reports whether target is one of the error's kinds.
func (e *Error) Is(target error) bool {
	return slices.Contains(e.kinds, target)
}

// kindOf is the inverse of the server's table; what is not in it is internal.
var kindOf = map[codes.Code]error{
	codes.InvalidArgument:    ErrInvalid,
	codes.Unauthenticated:    ErrUnauthenticated,
	codes.PermissionDenied:   ErrDenied,
	codes.NotFound:           ErrNotFound,
	codes.AlreadyExists:      ErrExists,
	codes.FailedPrecondition: ErrPrecondition,
	codes.ResourceExhausted:  ErrExhausted,
	codes.DeadlineExceeded:   ErrTimeout,
	codes.Unavailable:        ErrUnavailable,
	codes.Unimplemented:      ErrVersion,
}

// ofReason are the kinds that an error has for its reason, beside that of its code. A
// reason that is not here has the code's kind alone: Error has its fields.
var ofReason = map[errdefs.Reason]error{
	errdefs.SandboxNotFound:   ErrSandboxNotFound,
	errdefs.CodebaseNotFound:  ErrCodebaseNotFound,
	errdefs.SessionNotFound:   ErrSessionNotFound,
	errdefs.ExecNotFound:      ErrExecNotFound,
	errdefs.SandboxNotRunning: ErrNotRunning,
	errdefs.SandboxRunning:    ErrAlreadyRunning,
	errdefs.SessionClosed:     ErrSessionClosed,
}

// clockSkew is how much earlier the server may find that a deadline has passed.
const clockSkew = 100 * time.Millisecond

// ofKind are the kinds of errors of this host's files.
var ofKind = map[errdefs.Kind]error{
	errdefs.Invalid: ErrInvalid, errdefs.Unauthenticated: ErrUnauthenticated, errdefs.NotFound: ErrNotFound, errdefs.Exists: ErrExists,
	errdefs.Denied: ErrDenied, errdefs.Precondition: ErrPrecondition, errdefs.Exhausted: ErrExhausted, errdefs.Unavailable: ErrUnavailable,
	errdefs.Deadline: ErrTimeout, errdefs.Unsupported: ErrVersion, errdefs.Internal: ErrInternal,
}

// local makes an error of this host's files an *Error.
func local(operation string, err error) error {
	return failure(operation, err.Error(), ofKind[errdefs.KindOf(err)], err)
}

// explained is what the server says, or is said of it, with what to do.
func (c *Client) explained(s *status.Status) string {
	switch s.Code() {
	case codes.Unavailable:
		return "the server at " + c.at.String() + " cannot be reached: " + s.Message() + "; is `agentfense serve` running there?"
	case codes.Unauthenticated:
		return "the server at " + c.at.String() + " does not accept the token: " + s.Message() + "; use WithToken, or set AGENTFENSE_TOKEN or AGENTFENSE_TOKEN_FILE"
	}
	return s.Message()
}

// fail makes an error of a call an *Error. The end of the caller's own context
// stays what it is, and our own reason to end a call is its error.
func (c *Client) fail(ctx context.Context, operation string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s := status.Convert(err)
	if at, bounded := ctx.Deadline(); bounded && s.Code() == codes.DeadlineExceeded && time.Until(at) < clockSkew {
		<-ctx.Done() // the server, which knows the deadline, was a moment earlier
	}
	if why := (*Error)(nil); errors.As(context.Cause(ctx), &why) {
		return why
	}
	if ctx.Err() != nil {
		return failure(operation, ctx.Err().Error(), ctx.Err())
	}
	if s.Code() == codes.Canceled && c.closed.Load() {
		return failure(operation, "the client is closed", ErrPrecondition)
	}
	e := &Error{Operation: operation, Message: c.explained(s), NotStarted: stream.NotStarted(s)}
	kind, known := kindOf[s.Code()]
	if !known {
		kind = ErrInternal
	}
	e.kinds = append(e.kinds, kind)
	e.take(s.Details())
	if kind := ofReason[stream.Reason(s)]; kind != nil {
		e.kinds = append(e.kinds, kind)
	}
	return e
}

// take reads what the server says beside its words: see internal/server/service/detail.go.
func (e *Error) take(details []any) {
	refused := false
	for _, d := range details {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Status, e.Resource = SandboxStatus(d.Metadata["status"]), d.Metadata["resource"]
			e.Limit, _ = strconv.ParseInt(d.Metadata["limit"], 10, 64) // 0: it is another's
		case *errdetails.PreconditionFailure:
			for _, v := range d.Violations {
				if v.Type == string(OutcomeConflict) {
					e.Conflicts = append(e.Conflicts, vpath.DecodeText(v.Subject))
				}
				refused = refused || v.Type == string(OutcomeRefused)
			}
		}
	}
	e.standsInTheWay(refused)
}

// standsInTheWay adds the kind of what an apply met.
func (e *Error) standsInTheWay(refused bool) {
	if len(e.Conflicts) > 0 {
		e.kinds = append(e.kinds, ErrConflict)
	} else if refused {
		e.kinds = append(e.kinds, ErrDenied)
	}
}
