// Package errdefs is the closed list of error kinds that agentfense promises.
//
// An error made here carries a Kind, a text and, where there is one, its
// cause. Kinds are mapped to exit codes, errnos and status codes in one table
// each (cli/exit.go, fusefs/errno.go, service/status.go); nothing else decides
// on numbers. Text is lower case, "operation object: cause".
package errdefs

import (
	"errors"
	"fmt"
)

// Kind says what went wrong in terms a caller can act on.
type Kind uint8

// The kinds. The zero value is Internal, so an error nobody classified is
// never mistaken for a harmless one.
const (
	Internal        Kind = iota // a bug, or the host misbehaved
	Invalid                     // the input is wrong, and would be wrong again
	Unauthenticated             // the caller has not said who it is
	NotFound                    // no such object
	Hidden                      // the policy says none; shown like NotFound
	Exists                      // the name is taken
	Denied                      // the policy or the mode refuses
	Precondition                // the object's state does not allow it now
	Exhausted                   // a quota, a limit or the disk is full
	Unsupported                 // this host or this build cannot do it
	Unavailable                 // try again later
	Canceled                    // the caller gave up
	Deadline                    // the time allowed ran out
)

var kindNames = [...]string{
	Internal:        "internal",
	Invalid:         "invalid",
	Unauthenticated: "unauthenticated",
	NotFound:        "not found",
	Hidden:          "hidden",
	Exists:          "exists",
	Denied:          "denied",
	Precondition:    "precondition",
	Exhausted:       "exhausted",
	Unsupported:     "unsupported",
	Unavailable:     "unavailable",
	Canceled:        "canceled",
	Deadline:        "deadline",
}

// String returns the kind's lower-case name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is an error with a Kind.
type Error struct {
	Kind Kind
	err  error
}

// New returns an error of kind k. The format takes %w like fmt.Errorf, so the
// cause stays reachable by errors.Is and errors.As.
func New(k Kind, format string, args ...any) error {
	return &Error{Kind: k, err: fmt.Errorf(format, args...)}
}

// Error returns the text alone; the kind is for programs.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause that the format named with %w, if any.
func (e *Error) Unwrap() error { return errors.Unwrap(e.err) }

// KindOf returns the kind of the outermost *Error in err's chain, or Internal
// if there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// Is reports whether err is of kind k. It is false for a nil err.
func Is(err error, k Kind) bool {
	return err != nil && KindOf(err) == k
}
