package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/fault"
	"github.com/agentfense/agentfense/internal/vpath"
)

// passedVariables are the caller's variables that a command sees: how to talk
// to the person, nothing that steers a program or holds a secret.
var passedVariables = []string{
	"COLORTERM", "LANG", "LANGUAGE", "NO_COLOR", "TERM", "TZ",
	"LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
}

// systemPath are the directories of PATH that every sandbox has.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// environment is what the variables inside are built from.
type environment struct {
	Sandbox   string
	Home      string
	User      string
	Reachable []string // directories inside that hold what the host has there
	Extra     []string // --env K or K=V
}

// checkVariables refuses what --env cannot mean.
func checkVariables(extra []string) error {
	for _, v := range extra {
		if name, _, _ := strings.Cut(v, "="); name == "" {
			return fault.New(fault.Invalid, "--env %q: want NAME or NAME=VALUE", v)
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

// build returns the complete environment of a command: the allowlist, then
// what the person named, which has been checked.
func (v environment) build(getenv func(string) string) []string {
	vars := []string{
		"PATH=" + v.path(getenv("PATH")),
		"HOME=" + v.Home,
		"USER=" + v.User,
		"LOGNAME=" + v.User,
		"AGENTFENSE_SANDBOX=" + v.Sandbox,
	}
	for _, name := range passedVariables {
		if value := getenv(name); value != "" {
			vars = append(vars, name+"="+value)
		}
	}
	for _, extra := range v.Extra {
		name, value, given := strings.Cut(extra, "=")
		if !given {
			if value = getenv(name); value == "" {
				continue // as sayUnset has said
			}
		}
		vars = slices.DeleteFunc(vars, func(s string) bool { return strings.HasPrefix(s, name+"=") })
		vars = append(vars, name+"="+value)
	}
	return vars
}

// path keeps of the caller's PATH what exists inside, in the caller's order,
// then the system's own directories.
func (v environment) path(ours string) string {
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range filepath.SplitList(ours) {
		if filepath.IsAbs(dir) && v.reaches(filepath.Clean(dir)) {
			add(filepath.Clean(dir))
		}
	}
	for _, dir := range systemPath {
		add(dir)
	}
	return strings.Join(dirs, ":")
}

func (v environment) reaches(dir string) bool {
	return slices.ContainsFunc(append([]string{"/usr", "/bin", "/sbin"}, v.Reachable...), func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}
