package service

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/secrets"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
)

// Limits of the variables of a command, so that the kernel can start a program with them: execve(2)
// limits arguments and variables to a quarter of the stack's limit, by default 8 MiB, and counts a
// pointer for each.
const (
	maxEnvironmentBytes = 1 << 20
	oneVariableBytes    = 16
)

// environment returns a command's complete environment: the addresses of its secrets, overridden by
// the variables that the sandbox remembers, these by the given ones, and all by the placeholders of
// its secrets. It has the server's PATH if the sandbox shows the server's system directories.
func environment(sb *record.Sandbox, given map[string]string) ([]string, error) {
	all, err := remembered(sb)
	if err != nil {
		return nil, err
	}
	if err := checkVariables(all, given); err != nil {
		return nil, err
	}
	rec := sb.Record()
	addresses, placeholders, err := secrets.Variables(&rec)
	if err != nil {
		return nil, err
	}
	user := supervise.UserOf(&rec)
	v := supervise.Environment{Sandbox: sb.Name(), Home: user.Home, User: user.Name, Extra: slices.Concat(addresses, variablesOf(all), placeholders)}
	return v.Build(func(name string) string {
		if name == "PATH" && rec.Runtime != record.RuntimeDocker {
			return os.Getenv(name)
		}
		return ""
	}), nil
}

// checkVariables adds the given variables to all. Errors: Invalid for variables that no command can
// have.
func checkVariables(all, given map[string]string) error {
	for name, value := range given {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return errdefs.New(errdefs.Invalid, "env: invalid variable name %s", vpath.Quote(name))
		case strings.ContainsRune(value, 0):
			return errdefs.New(errdefs.Invalid, "env: the value of %s contains a NUL", vpath.Quote(name))
		case len(name)+len("=")+len(value) > maxArgumentBytes:
			return errdefs.New(errdefs.Invalid, "env: %.64s is longer than %d bytes", vpath.Quote(name), maxArgumentBytes)
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

// variablesOf returns variables as NAME=VALUE, sorted.
func variablesOf(vars map[string]string) []string {
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// remembered returns the variables of all commands of a sandbox. It skips those without a value:
// the command line takes their values from its own environment.
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

// rememberVariables stores variables for all later commands of a sandbox.
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

// variableNames returns the names of the remembered variables; none if they cannot be read, which
// the next command reports.
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
