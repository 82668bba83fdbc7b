package supervise

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// passedVariables are the caller's variables that a command sees: how to talk
// to the person, nothing that steers a program or holds a secret.
var passedVariables = []string{
	"COLORTERM", "LANG", "LANGUAGE", "NO_COLOR", "TERM", "TZ",
	"LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
}

// SystemPath are the directories of PATH that every sandbox has.
var SystemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Environment is what the variables inside are built from.
type Environment struct {
	Sandbox   string
	Home      string
	User      string
	Reachable []string // directories inside that hold what the host has there
	Extra     []string // K for the caller's own value, or K=V
}

// Build returns the complete environment of a command: the allowlist, then
// what Extra names.
func (v Environment) Build(getenv func(string) string) []string {
	var vars []string
	at := map[string]int{} // where a name is in vars
	set := func(name, value string) {
		i, is := at[name]
		if !is {
			i, vars = len(vars), append(vars, "")
			at[name] = i
		}
		vars[i] = name + "=" + value
	}
	set("PATH", PathInside(v.Reachable, getenv("PATH")))
	set("HOME", v.Home)
	set("USER", v.User)
	set("LOGNAME", v.User)
	set("AGENTFENSE_SANDBOX", v.Sandbox)
	for _, name := range passedVariables {
		if value := getenv(name); value != "" {
			set(name, value)
		}
	}
	for _, extra := range v.Extra {
		name, value, given := strings.Cut(extra, "=")
		if !given {
			if value = getenv(name); value == "" {
				continue
			}
		}
		set(name, value)
	}
	return vars
}

// PassedOn is what a command that runs elsewhere gets of the caller's
// environment: what Build takes over, and what extra names.
func PassedOn(extra []string, getenv func(string) string) map[string]string {
	vars := map[string]string{}
	for _, name := range passedVariables {
		if value := getenv(name); value != "" {
			vars[name] = value
		}
	}
	for _, e := range extra {
		name, value, given := strings.Cut(e, "=")
		if !given {
			value = getenv(name)
		}
		if given || value != "" {
			vars[name] = value
		}
	}
	return vars
}

// Reachable returns the directories inside that hold what the host has there: the workspace,
// the mounts, and of a mounted file its directory.
func Reachable(r *record.Record) []string {
	dirs := []string{r.Workspace}
	for _, m := range r.Mounts {
		dir := string(m.Target)
		if info, err := os.Stat(string(m.Source)); err == nil && !info.IsDir() {
			dir = filepath.Dir(dir)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// PathInside keeps of the caller's PATH what exists inside, in the caller's
// order, then the system's own directories. reachable are directories inside
// that hold what the host has there.
func PathInside(reachable []string, ours string) string {
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range filepath.SplitList(ours) {
		if filepath.IsAbs(dir) && reaches(reachable, filepath.Clean(dir)) {
			add(filepath.Clean(dir))
		}
	}
	for _, dir := range SystemPath {
		add(dir)
	}
	return strings.Join(dirs, ":")
}

func reaches(reachable []string, dir string) bool {
	return slices.ContainsFunc(append([]string{"/usr", "/bin", "/sbin"}, reachable...), func(root string) bool {
		return dir == root || strings.HasPrefix(dir, root+"/")
	})
}
