package guest

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// checkStarted returns the error in the leader's answer to a command, or nil.
func checkStarted(message []byte, command Command) error {
	if _, err := decode(message, msgStarted, 0); err == nil {
		return nil
	}
	if len(message) != 1+1+4 || kindOf(message) != msgFailed {
		return errdefs.New(errdefs.Internal, "exec: leader: %w", errProtocol)
	}
	name, errno := command.Argv[0], unix.Errno(binary.LittleEndian.Uint32(message[2:]))
	switch stage(message[1]) {
	case stageDirectory:
		return errdefs.New(errdefs.Invalid, "exec %q: %w", name, &notStarted{ErrDirectory, command.Dir, errno})
	case stageTerminal:
		return startError("exec: open terminal", errno)
	case stageLookup:
		if errno == unix.ENOENT {
			return errdefs.New(errdefs.NotFound, "exec %q: %w", name, ErrNotFound)
		}
		return errdefs.New(errdefs.Denied, "exec %q: %w", name, &notStarted{ErrNotExecutable, "", errno})
	case stageExec:
		if errno == unix.EAGAIN || errno == unix.ENOMEM {
			return startError("exec: start a process", errno)
		}
		return errdefs.New(errdefs.Denied, "exec %q: %w", name, &notStarted{ErrNotExecutable, "", errno})
	}
	return errdefs.New(errdefs.Internal, "exec: leader: %w", errProtocol)
}

// notStarted says why a command was not started.
type notStarted struct {
	what   error // ErrDirectory or ErrNotExecutable
	object string
	errno  unix.Errno
}

func (e *notStarted) Error() string {
	if e.object != "" {
		return e.what.Error() + " " + e.object + ": " + e.errno.Error()
	}
	return e.what.Error() + ": " + e.errno.Error()
}

func (e *notStarted) Unwrap() []error { return []error{e.what, e.errno} }
