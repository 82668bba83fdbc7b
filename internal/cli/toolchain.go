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
// manage toolchains, and the variables that name others in their place, as their
// documentation has them: such a directory has to be shown whole for a toolchain in it to
// run. Of .cargo that is bin alone, and of uv's two directories, because they hold tokens
// too.
var managerDirs = []struct{ dir, variable string }{
	{".cargo/bin", ""},
	{".pyenv", "PYENV_ROOT"},
	{".nvm", "NVM_DIR"},
	{".local/share/fnm", "FNM_DIR"},
	{".volta", "VOLTA_HOME"},
	{".asdf", "ASDF_DATA_DIR"},
	{".local/share/mise", "MISE_DATA_DIR"},
	{".rbenv", "RBENV_ROOT"},
	{".nodenv", "NODENV_ROOT"},
	{".goenv", "GOENV_ROOT"},
	{".jenv", "JENV_ROOT"},
	{".sdkman", "SDKMAN_DIR"},
	{".local/share/uv/python", "UV_PYTHON_INSTALL_DIR"},
	{".local/share/uv/tools", "UV_TOOL_DIR"},
	{".bun/bin", ""},
	{".deno/bin", ""},
}

// inside is what a command finds in a sandbox with the host's system.
type inside struct {
	record record.Record
	path   []string // its PATH
	home   string   // of this user
	getenv func(string) string
}

func (e *env) lookInside(r record.Record) *inside {
	home := e.getenv("HOME")
	if !filepath.IsAbs(home) {
		home = supervise.CurrentUser().Home
	}
	return &inside{record: r, home: filepath.Clean(home), path: filepath.SplitList(supervise.PathInside(supervise.Reachable(&r), e.getenv("PATH"))), getenv: e.getenv}
}

// shows reports whether a program of the host is inside too, at the same path.
func (in *inside) shows(program string) bool {
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		return false
	}
	return in.isShown(program) && in.isShown(real)
}

// isShown reports whether the host's path p is shown inside, wherever links lead.
func (in *inside) isShown(p string) bool {
	return slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", in.record.Workspace}, func(dir string) bool { return safefs.IsBelow(p, dir) }) ||
		slices.ContainsFunc(in.record.Mounts, func(m record.Mount) bool { return safefs.IsBelow(p, string(m.Target)) })
}

// managerOf returns the directory of the version manager to which a path belongs, "" if to
// none.
func (in *inside) managerOf(p string) string {
	for _, m := range managerDirs {
		if dir := in.managerDir(m.dir); safefs.IsBelow(p, dir) {
			return dir
		}
	}
	return ""
}

// managerDir returns where the directory of managerDirs is.
func (in *inside) managerDir(dir string) string {
	i := slices.IndexFunc(managerDirs, func(m struct{ dir, variable string }) bool { return m.dir == dir })
	if value := in.getenv(managerDirs[i].variable); filepath.IsAbs(value) {
		return filepath.Clean(value)
	}
	return filepath.Join(in.home, dir)
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
		if manager := in.managerOf(p); manager != "" {
			add(manager)
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
