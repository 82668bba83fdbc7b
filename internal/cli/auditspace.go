package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// archiveAudit moves the records of a sandbox's log into a new file.
func archiveAudit(e *env, name, file string) (err error) {
	_, sb, err := e.open(name)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "--archive %s: %w", vpath.Quote(file), errors.Unwrap(err))
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return sb.ArchiveLog(out)
}

// pruneAudit deletes the logs of sandboxes that were removed longer ago than age.
func pruneAudit(e *env, age time.Duration) error {
	if age < 0 {
		return usageError{errdefs.New(errdefs.Invalid, "--prune %s: want a duration of 0 or more", age)}
	}
	home, err := e.openHome()
	if err != nil {
		return err
	}
	n, err := home.PruneLogs(age)
	if n > 0 || err == nil {
		fmt.Fprintf(e.stdout, "%s deleted\n", plural(n, "log"))
	}
	return err
}
