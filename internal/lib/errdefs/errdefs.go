// Package errdefs is the closed list of error kinds that agentfense promises.
//
// An Error has a Kind, a text and possibly a cause. One table each maps kinds to exit codes, errnos
// and status codes (cli/exit.go, fusefs/errno.go, service/status.go). Text is lower case,
// "operation object: cause".
package errdefs

import (
	"errors"
	"fmt"
)

// Kind is the category of an error, by what a caller can do.
type Kind uint8

// The kinds. The zero value is Internal, so that an unclassified error never looks harmless.
const (
	Internal        Kind = iota // a bug, or the host misbehaved
	Invalid                     // the input is wrong
	Unauthenticated             // missing or invalid credentials
	NotFound                    // no such object
	Hidden                      // the policy hides it; shown like NotFound
	Exists                      // the name is taken
	Denied                      // the policy or the mode refuses
	Precondition                // the object's state does not allow it now
	Exhausted                   // a quota, a limit or the disk is full
	Unsupported                 // this host or this build cannot do it
	Unavailable                 // try again later
	Canceled                    // the caller canceled
	Deadline                    // the time-out was reached
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
	Kind     Kind
	err      error
	commands []Command
}

// New returns an error of kind k. The format takes %w like fmt.Errorf, so the
// cause stays reachable by errors.Is and errors.As. Where an argument is a Command, the text must
// read well without it, too: see Plain.
func New(k Kind, format string, args ...any) error {
	e := &Error{Kind: k, err: fmt.Errorf(format, args...)}
	for _, arg := range args {
		if c, is := arg.(Command); is {
			e.commands = append(e.commands, c)
		}
	}
	return e
}

// Error returns the text, without the kind.
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
