package codebase

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// wrap gives an error of the host's file system its kind and the text "operation path: cause",
// without the host's path. It returns an *errdefs.Error unchanged.
func wrap(operation string, p vpath.Path, err error) error {
	if err == nil {
		return nil
	}
	if _, is := errors.AsType[*errdefs.Error](err); is {
		return err
	}
	if errors.Is(err, unix.ELOOP) {
		return errdefs.New(errdefs.Invalid, "%s %s: symbolic link is not followed", operation, p)
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

// withoutPath removes the host's path that package os puts before the cause.
func withoutPath(err error) error {
	if errno, is := errors.AsType[unix.Errno](err); is {
		return errno
	}
	return err
}

// wrapRead is wrap for calls that read: if an element of the path is not a directory, the file does
// not exist.
func wrapRead(operation string, p vpath.Path, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return errdefs.New(errdefs.NotFound, "%s %s: %w", operation, p, unix.ENOENT)
	}
	return wrap(operation, p, err)
}

// wrapWrite is wrap for calls that write: an element of the path that is not a directory is a
// conflict.
func wrapWrite(operation string, p vpath.Path, err error) error {
	if errors.Is(err, unix.ENOTDIR) {
		return errdefs.New(errdefs.Precondition, "%s %s: a parent of the path is a file", operation, p)
	}
	return wrap(operation, p, err)
}
