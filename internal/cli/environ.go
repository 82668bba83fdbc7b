package cli

import (
	"strings"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// checkVariables refuses what --env cannot mean.
func checkVariables(extra []string) error {
	for _, v := range extra {
		if name, _, _ := strings.Cut(v, "="); name == "" {
			return errdefs.New(errdefs.Invalid, "--env %q: want NAME or NAME=VALUE", v)
		}
	}
	return nil
}

// sayUnset tells of variables that are to be passed on and are not set.
func (e *env) sayUnset(extra []string) {
	for _, name := range extra {
		if !strings.Contains(name, "=") && e.getenv(name) == "" {
			e.say("--env %s: not set, so not passed on", vpath.Quote(name))
		}
	}
}

// given are the variables whose value is given, which a server keeps.
func given(extra []string) map[string]string {
	vars := map[string]string{}
	for _, v := range extra {
		if name, value, is := strings.Cut(v, "="); is {
			vars[name] = value
		}
	}
	return vars
}

// rememberOnServer notes the names of variables whose value stays here. A sandbox of
// which nothing was uploaded from here has no place for them.
func (e *env) rememberOnServer(sb backend.Sandbox, extra []string) error {
	if len(extra) == 0 {
		return nil
	}
	u, err := e.uploadOf(sb)
	if err != nil || u == nil {
		return err
	}
	return u.RememberNames(extra)
}

// namesOnServer returns what rememberOnServer has noted.
func (e *env) namesOnServer(sb backend.Sandbox) ([]string, error) {
	u, err := e.uploadOf(sb)
	if err != nil || u == nil {
		return nil, err
	}
	return u.Names()
}
