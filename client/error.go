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
	ErrConflict         = errors.New("conflict with the source") // of Apply and Merge; also ErrPrecondition
	ErrExhausted        = errors.New("resource exhausted")
	ErrTimeout          = errors.New("command timed out")
	ErrCommand          = errors.New("command failed") // only of ExecResult.Err
	ErrUnavailable      = errors.New("server unavailable")
	ErrVersion          = errors.New("version mismatch") // between server and program; the message says which to upgrade
	ErrInternal         = errors.New("internal error")
)

// Error is the error of a call.
type Error struct {
	Operation string // the call, such as "run"
	Message   string // of the server
	// Conflicts are the paths of ErrConflict; the list may be cut, a dry run has all.
	Conflicts []string
	// Status is the state of the sandbox of ErrNotRunning.
	Status SandboxStatus
	// Limit is the limit of ErrExhausted, and Resource what it limits: "bytes", "files",
	// "sandboxes". 0 and "": unknown.
	Limit    int64
	Resource string
	// NotStarted means that certainly nothing of the command has run.
	NotStarted bool

	kinds []error
}

func failure(operation, message string, kinds ...error) *Error {
	return &Error{Operation: operation, Message: message, kinds: kinds}
}

// Error returns the operation and the message.
func (e *Error) Error() string { return e.Operation + ": " + e.Message }

// Is reports whether target is one of the error's kinds.
func (e *Error) Is(target error) bool {
	return slices.Contains(e.kinds, target)
}

// kindOf is the reverse of the server's table; another code is internal.
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

// ofReason are additional kinds of errors by their reason. An error with another reason has only
// the kind of its code; the details are in the fields of Error.
var ofReason = map[errdefs.Reason]error{
	errdefs.SandboxNotFound:   ErrSandboxNotFound,
	errdefs.CodebaseNotFound:  ErrCodebaseNotFound,
	errdefs.SessionNotFound:   ErrSessionNotFound,
	errdefs.ExecNotFound:      ErrExecNotFound,
	errdefs.SandboxNotRunning: ErrNotRunning,
	errdefs.SandboxRunning:    ErrAlreadyRunning,
	errdefs.SessionClosed:     ErrSessionClosed,
}

// clockSkew is how much earlier than the client the server may see a deadline.
const clockSkew = 100 * time.Millisecond

// ofKind are the kinds of errors of this host's files.
var ofKind = map[errdefs.Kind]error{
	errdefs.Invalid: ErrInvalid, errdefs.Unauthenticated: ErrUnauthenticated, errdefs.NotFound: ErrNotFound, errdefs.Exists: ErrExists,
	errdefs.Denied: ErrDenied, errdefs.Precondition: ErrPrecondition, errdefs.Exhausted: ErrExhausted, errdefs.Unavailable: ErrUnavailable,
	errdefs.Deadline: ErrTimeout, errdefs.Unsupported: ErrVersion, errdefs.Internal: ErrInternal,
}

// local converts an error of this host's files to an *Error.
func local(operation string, err error) error {
	return failure(operation, err.Error(), ofKind[errdefs.KindOf(err)], err)
}

// explained returns the message of a status, for some codes with advice.
func (c *Client) explained(s *status.Status) string {
	switch s.Code() {
	case codes.Unavailable:
		return "the server at " + c.at.String() + " cannot be reached: " + s.Message() + "; is `agentfense serve` running there?"
	case codes.Unauthenticated:
		return "the server at " + c.at.String() + " does not accept the token: " + s.Message() + "; use WithToken, or set AGENTFENSE_TOKEN or AGENTFENSE_TOKEN_FILE"
	}
	return s.Message()
}

// fail converts an error of a call to an *Error. If the caller's context has ended, it is that
// error; if the client itself ended the call, its reason.
func (c *Client) fail(ctx context.Context, operation string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s := status.Convert(err)
	if at, bounded := ctx.Deadline(); bounded && s.Code() == codes.DeadlineExceeded && time.Until(at) < clockSkew {
		<-ctx.Done() // the server saw the deadline a moment earlier
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

// take reads the details of a status: see internal/server/service/detail.go.
func (e *Error) take(details []any) {
	refused := false
	for _, d := range details {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			e.Status, e.Resource = SandboxStatus(d.Metadata["status"]), d.Metadata["resource"]
			e.Limit, _ = strconv.ParseInt(d.Metadata["limit"], 10, 64) // 0 without a limit
		case *errdetails.PreconditionFailure:
			for _, v := range d.Violations {
				if v.Type == string(OutcomeConflict) {
					e.Conflicts = append(e.Conflicts, vpath.DecodeText(v.Subject))
				}
				refused = refused || v.Type == string(OutcomeRefused)
			}
		}
	}
	e.addApplyKind(refused)
}

// addApplyKind adds the kind of the error of an apply.
func (e *Error) addApplyKind(refused bool) {
	if len(e.Conflicts) > 0 {
		e.kinds = append(e.kinds, ErrConflict)
	} else if refused {
		e.kinds = append(e.kinds, ErrDenied)
	}
}
