package guest

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// judgeStart reads the leader's answer to a command.
func judgeStart(message []byte, command Command) error {
	if _, err := decode(message, msgStarted, 0); err == nil {
		return nil
	}
	if len(message) != 1+1+4 || kindOf(message) != msgFailed {
		return errdefs.New(errdefs.Internal, "exec: leader: %w", errProtocol)
	}
	name, errno := command.Argv[0], unix.Errno(binary.LittleEndian.Uint32(message[2:]))
	switch stage(message[1]) {
	case stageDirectory:
		return errdefs.New(errdefs.Invalid, "exec %q: %w", name, &startError{ErrDirectory, command.Dir, errno})
	case stageTerminal:
		return startFault("exec: open terminal", errno)
	case stageLookup:
		if errno == unix.ENOENT {
			return errdefs.New(errdefs.NotFound, "exec %q: %w", name, ErrNotFound)
		}
		return errdefs.New(errdefs.Denied, "exec %q: %w", name, &startError{ErrNotExecutable, "", errno})
	case stageExec:
		if errno == unix.EAGAIN || errno == unix.ENOMEM {
			return startFault("exec: start a process", errno)
		}
		return errdefs.New(errdefs.Denied, "exec %q: %w", name, &startError{ErrNotExecutable, "", errno})
	}
	return errdefs.New(errdefs.Internal, "exec: leader: %w", errProtocol)
}

// startError says why a command was not started.
type startError struct {
	what   error // ErrDirectory or ErrNotExecutable
	object string
	errno  unix.Errno
}

func (e *startError) Error() string {
	if e.object != "" {
		return e.what.Error() + " " + e.object + ": " + e.errno.Error()
	}
	return e.what.Error() + ": " + e.errno.Error()
}

func (e *startError) Unwrap() []error { return []error{e.what, e.errno} }
