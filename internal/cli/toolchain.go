package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/supervise"
)

// toolOf names the program that a project with a file of that name is built with.
var toolOf = []struct{ file, program string }{
	{"package.json", "node"},
	{".nvmrc", "node"},
	{"pyproject.toml", "python3"},
	{"requirements.txt", "python3"},
	{"setup.py", "python3"},
	{".python-version", "python3"},
	{"Cargo.toml", "cargo"},
	{"go.mod", "go"},
	{"Gemfile", "ruby"},
	{"pom.xml", "java"},
	{"build.gradle", "java"},
}

// managerDirs are the directories below the home directory of programs that
// manage toolchains, as their documentation has them: such a directory has to be
// shown whole for a toolchain in it to run. Of .cargo that is bin alone: it holds
// a token too, and cargo writes to it.
var managerDirs = []string{
	".cargo/bin", ".pyenv", ".nvm", ".local/share/fnm", ".volta", ".asdf", ".local/share/mise", ".rbenv",
	".nodenv", ".goenv", ".jenv", ".sdkman", ".local/share/uv", ".bun", ".deno",
}

// inside is what a command finds in a sandbox with the host's system.
type inside struct {
	record record.Record
	path   []string // its PATH
	home   string   // of this user
}

func (e *env) lookInside(r record.Record) *inside {
	home := e.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = supervise.CurrentUser().Home
	}
	return &inside{record: r, home: filepath.Clean(home), path: filepath.SplitList(supervise.PathInside(reachable(r), e.getenv("PATH")))}
}

// reachable are the directories inside that hold what the host has there.
func reachable(r record.Record) []string {
	dirs := []string{r.Workspace}
	for _, m := range r.Mounts {
		dirs = append(dirs, string(m.Target))
	}
	return dirs
}

// shows reports whether a program of the host is inside too, at the same path.
func (in *inside) shows(program string) bool {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return false
	}
	for _, p := range []string{program, real} {
		if !slices.ContainsFunc(append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}, reachable(in.record)...), func(dir string) bool { return safefs.IsBelow(p, dir) }) {
			return false
		}
	}
	return true
}

// sayTools says which of the programs that the project is built with are others
// inside, or not there.
func (e *env) sayTools(r record.Record) {
	for _, t := range toolOf {
		if has(string(r.Source.Path), t.file) {
			e.sayProgram(r, t.program)
		}
	}
}

// sayProgram says, once, if a program that the caller's PATH finds is not the
// one inside: a version manager's for example, which lies below the home.
func (e *env) sayProgram(r record.Record, name string) {
	if r.Runtime == record.RuntimeDocker || strings.Contains(name, "/") || e.toldPrograms[name] {
		return
	}
	ours := e.ownProgram(name)
	in := e.lookInside(r)
	if ours == "" || in.shows(ours) {
		return
	}
	if e.toldPrograms == nil {
		e.toldPrograms = map[string]bool{}
	}
	e.toldPrograms[name] = true
	called, to := vpath.Escape(name), e.flagsFor(in, ours)
	if theirs := findProgram(name, in.path, in.shows); theirs != "" {
		e.say("%s: inside, this is %s, not your %s; to have yours: %s", called, vpath.Escape(in.versioned(theirs)), vpath.Escape(in.versioned(ours)), to)
		return
	}
	e.say("%s: not found inside; yours, %s, is not shown; to have it: %s", called, vpath.Escape(in.versioned(ours)), to)
}

// ownProgram is what the caller's PATH finds by that name, "" if nothing.
func (e *env) ownProgram(name string) string {
	return findProgram(name, filepath.SplitList(e.getenv("PATH")), func(string) bool { return true })
}

// findProgram returns the first program of that name in dirs that is good.
func findProgram(name string, dirs []string, good func(path string) bool) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && good(path) {
			return path
		}
	}
	return ""
}

// neededFor returns the directories that have to be shown for a program to run:
// its own and, of a link, that of the program it leads to, or what its version
// manager needs in their place. A directory that contains the workspace cannot be mounted, so
// the program itself stands for it.
func (in *inside) neededFor(program string) []string {
	var dirs []string
	add := func(dir string) {
		if !slices.Contains(dirs, dir) && !safefs.IsBelow(dir, in.record.Workspace) && !safefs.IsBelow(dir, "/usr") {
			dirs = append(dirs, dir)
		}
	}
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		real = program
	}
	for _, p := range []string{program, real} {
		at := slices.IndexFunc(managerDirs, func(dir string) bool { return safefs.IsBelow(p, filepath.Join(in.home, dir)) })
		if at >= 0 {
			add(filepath.Join(in.home, managerDirs[at]))
		} else {
			dir := in.treeOf(filepath.Dir(p))
			if safefs.IsBelow(in.record.Workspace, dir) {
				dir = p
			}
			add(dir)
		}
	}
	return dirs
}

// outermost leaves out the paths below others of them: mounts must not overlap.
func outermost(paths []string) []string {
	var outer []string
	for i, p := range paths {
		covered := slices.Contains(paths[:i], p) || slices.ContainsFunc(paths, func(other string) bool { return other != p && safefs.IsBelow(p, other) })
		if !covered {
			outer = append(outer, p)
		}
	}
	return outer
}

// treeOf is the directory that a toolchain with its programs in dir was unpacked
// to: the one that holds bin, unless that is a place for other things too.
func (in *inside) treeOf(dir string) string {
	tree := filepath.Dir(dir)
	if filepath.Base(dir) != "bin" || slices.Contains([]string{"/", "/opt", in.home, filepath.Join(in.home, ".local")}, tree) {
		return dir
	}
	return tree
}
