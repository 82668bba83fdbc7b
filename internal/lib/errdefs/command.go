package errdefs

import "strings"

// Command is a command line of agentfense, without the name of the program, that does what the
// text before it says.
type Command string

// String returns the command behind a colon.
func (c Command) String() string { return ": agentfense " + string(c) }

// Commands returns those in the error's own text.
func (e *Error) Commands() []Command { return e.commands }

// Plain returns the text of an error without the commands in it, for callers who have no command
// line on this host: clients of the API, and agents.
func Plain(err error) string {
	text := err.Error()
	for _, c := range CommandsOf(err) {
		text = strings.ReplaceAll(text, c.String(), "")
	}
	return text
}

// CommandsOf returns the commands in the text of an error.
func CommandsOf(err error) []Command {
	var all []Command
	if e, has := err.(interface{ Commands() []Command }); has {
		all = append(all, e.Commands()...)
	}
	if e, has := err.(interface{ Unwrap() error }); has {
		if cause := e.Unwrap(); cause != nil {
			all = append(all, CommandsOf(cause)...)
		}
	}
	if e, has := err.(interface{ Unwrap() []error }); has {
		for _, cause := range e.Unwrap() {
			all = append(all, CommandsOf(cause)...)
		}
	}
	return all
}
