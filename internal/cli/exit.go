package cli

import (
	"errors"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
)

// Exit codes, a promise (docs/cli-abi.md). A command's own code passes
// unchanged; the others follow timeout(1) and the shells.
const (
	exitOK            = 0
	exitFailure       = 1   // a verb other than run, exec, shell found a problem
	exitUsage         = 2   // wrong words on the command line of such a verb
	exitLeftOut       = 3   // apply left out what had changed since it was shown
	exitTimeout       = 124 // the time allowed ran out
	exitSetup         = 125 // could not set up, or refused to
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignalBase    = 128 // plus the signal's number
	exitOutOfMemory   = 137
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
	case errors.As(err, &command) && command.NotExecutable:
		return exitNotExecutable
	case errors.As(err, &command):
		return exitNotFound
	case errdefs.Is(err, errdefs.Deadline):
		return exitTimeout
	case strict:
		return exitSetup
	case errors.As(err, &usage):
		return exitUsage
	case errdefs.Is(err, errdefs.Unsupported), errdefs.Is(err, errdefs.Invalid):
		return exitSetup
	}
	return exitFailure
}

// exitOf maps how a command ended to the process's exit code.
func exitOf(e api.Exit) int {
	switch {
	case e.Reason == api.ReasonTimeout:
		return exitTimeout
	case e.Reason == api.ReasonOutOfMemory:
		return exitOutOfMemory
	case e.Signal != 0:
		return exitSignalBase + e.Signal
	}
	return e.Code
}
