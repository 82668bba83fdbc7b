package cli

import (
	"errors"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Exit codes, a promise (docs/cli-abi.md). A command's own code passes
// unchanged, and api.Exit has those of a command without one.
const (
	exitOK      = 0
	exitFailure = 1   // a verb other than run, exec, shell found a problem
	exitUsage   = 2   // wrong words on the command line of such a verb
	exitLeftOut = 3   // apply left out what had changed since it was shown
	exitSetup   = 125 // could not set up, or refused to
)

// exitError carries the exit code of a command that ran inside; there is
// nothing to print.
type exitError int

func (exitError) Error() string { return "command ended" }

// usageError marks an error of the command line's words.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// exitCode maps an error to the process's exit code. strict is true for the
// verbs that run a command inside, whose own codes 1 to 123 must not be
// mistaken for ours.
func exitCode(err error, strict bool) int {
	var (
		exit    exitError
		command *api.CommandError
		usage   usageError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &command):
		return command.ExitCode()
	case errdefs.Is(err, errdefs.Deadline):
		return api.ExitTimeout
	case strict:
		return exitSetup
	case errors.As(err, &usage):
		return exitUsage
	case errdefs.Is(err, errdefs.Unsupported), errdefs.Is(err, errdefs.Invalid):
		return exitSetup
	}
	return exitFailure
}
