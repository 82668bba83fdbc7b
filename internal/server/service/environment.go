package service

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
)

// The most that the variables of a command may take, so that a program can be
// started with them: execve(2) bounds arguments and variables at a quarter of the
// stack's limit, of 8 MiB usually, and counts a pointer for each.
const (
	maxEnvironmentBytes = 1 << 20
	oneVariableBytes    = 16
)

// environment is a command's complete environment: with what the sandbox remembers,
// and then what is given. Of the server's own there are the directories of its PATH,
// where the system inside is the server's.
func environment(sb *record.Sandbox, given map[string]string) ([]string, error) {
	all, err := remembered(sb)
	if err != nil {
		return nil, err
	}
	if err := checkVariables(all, given); err != nil {
		return nil, err
	}
	rec := sb.Record()
	user := supervise.UserOf(&rec)
	v := supervise.Environment{Sandbox: sb.Name(), Home: user.Home, User: user.Name, Extra: variablesOf(all)}
	return v.Build(func(name string) string {
		if name == "PATH" && rec.Runtime != record.RuntimeDocker {
			return os.Getenv(name)
		}
		return ""
	}), nil
}

// checkVariables adds what is given to all. Errors: Invalid for what no command can
// have.
func checkVariables(all, given map[string]string) error {
	for name, value := range given {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return errdefs.New(errdefs.Invalid, "env: %s is no name of a variable", vpath.Quote(name))
		case strings.ContainsRune(value, 0):
			return errdefs.New(errdefs.Invalid, "env: the value of %s holds a NUL", vpath.Quote(name))
		case len(name)+len("=")+len(value) > maxArgumentBytes:
			return errdefs.New(errdefs.Invalid, "env: %.64s is longer than the %d bytes that a variable may have", vpath.Quote(name), maxArgumentBytes)
		}
	}
	maps.Copy(all, given)
	size := 0
	for name, value := range all {
		size += len(name) + len(value) + oneVariableBytes
	}
	if size > maxEnvironmentBytes {
		return errdefs.New(errdefs.Invalid, "env: %d variables take more than %d bytes", len(all), maxEnvironmentBytes)
	}
	return nil
}

// variablesOf are variables as NAME=VALUE, by name.
func variablesOf(vars map[string]string) []string {
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// remembered are the variables that all commands of a sandbox have. One without a
// value is the command line's, of a caller on this host.
func remembered(sb *record.Sandbox) (map[string]string, error) {
	list, err := sb.Variables()
	if err != nil {
		return nil, err
	}
	vars := make(map[string]string, len(list))
	for _, v := range list {
		if name, value, given := strings.Cut(v, "="); given {
			vars[name] = value
		}
	}
	return vars, nil
}

// rememberVariables keeps variables for all commands of a sandbox to come.
func rememberVariables(sb *record.Sandbox, given map[string]string) error {
	if len(given) == 0 {
		return nil
	}
	all, err := remembered(sb)
	if err == nil {
		err = checkVariables(all, given)
	}
	if err != nil {
		return err
	}
	return sb.RememberVariables(variablesOf(given))
}

// variableNames names what is remembered. What cannot be read is an error of the next
// command, and names nothing.
func variableNames(sb *record.Sandbox) []record.HostPath {
	vars, err := remembered(sb)
	if err != nil {
		return nil
	}
	var names []record.HostPath
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		names = append(names, record.HostPath(name))
	}
	return names
}
