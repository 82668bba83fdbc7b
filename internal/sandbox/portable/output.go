package portable

import (
	"errors"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// failedWrite is failed, or the error of Options.bound.
func failedWrite(name string, err error) error {
	if _, known := errors.AsType[*errdefs.Error](err); known {
		return err
	}
	return failed(name, err)
}

// failed wraps an error of the host's file system.
func failed(name string, err error) error {
	return errdefs.New(safefs.Kind(err), "export to %s: %w", vpath.Quote(name), err)
}
