package codebase

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// wrap gives an error of the host's file system its kind and the text
// "operation path: cause", without the host's path. A fault passes as it is.
func wrap(operation string, p vpath.Path, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*errdefs.Error](err); is {
		return err
	}
	if errors.Is(err, unix.ELOOP) {
		return errdefs.New(errdefs.Invalid, "%s %s: a symbolic link is not followed", operation, p)
	}
	return errdefs.New(safefs.Kind(err), "%s %s: %w", operation, p, withoutPath(err))
}

// wrapStore is wrap for the store's own files.
func wrapStore(what string, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*errdefs.Error](err); is {
		return err
	}
	return errdefs.New(safefs.Kind(err), "%s: %w", what, withoutPath(err))
}

// withoutPath drops the host's path that the os package puts before the cause.
func withoutPath(err error) error {
	if errno, is := errors.AsType[unix.Errno](err); is {
		return errno
	}
	return err
}

// wrapRead is wrap for the calls that read: where a part of the path is no
// directory there is no such file.
func wrapRead(operation string, p vpath.Path, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return errdefs.New(errdefs.NotFound, "%s %s: %w", operation, p, unix.ENOENT)
	}
	return wrap(operation, p, err)
}

// wrapWrite is wrap for the calls that change something: there it stands in
// the way.
func wrapWrite(operation string, p vpath.Path, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return errdefs.New(errdefs.Precondition, "%s %s: a file is where a directory would have to be", operation, p)
	}
	return wrap(operation, p, err)
}
