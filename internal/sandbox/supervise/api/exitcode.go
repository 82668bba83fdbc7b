package api

// The exit codes of commands that have none of their own, as timeout(1) and the shells
// have them: a promise (docs/cli-abi.md).
const (
	ExitTimeout       = 124 // the time allowed ran out
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitSignalBase    = 128 // plus the signal's number
	ExitOutOfMemory   = 137
)

// ExitCode returns the exit code of a command however it has ended.
func (e Exit) ExitCode() int {
	switch {
	case e.Reason == ReasonTimeout:
		return ExitTimeout
	case e.Reason == ReasonOutOfMemory:
		return ExitOutOfMemory
	case e.Signal != 0:
		return ExitSignalBase + e.Signal
	}
	return e.Code
}

// ExitCode returns the exit code of a command that could not be started.
func (e *CommandError) ExitCode() int {
	if e.NotExecutable {
		return ExitNotExecutable
	}
	return ExitNotFound
}
