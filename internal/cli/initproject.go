package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/sandbox/profile"
	"github.com/agentfense/agentfense/internal/view/secretscan"
)

// project is what init found in a directory.
type project struct {
	languages []language
	agents    []string // programs on the PATH
	dirs      []string // names of directories at the top
	scan      secretscan.Result
}

// language is a language or a build tool, with the files that show it.
type language struct {
	Name    string
	Files   []string // names or patterns of filepath.Match
	Hosts   string   // the network preset of its packages, "" if there is none
	Scratch string   // the directory with installed packages, "" if it has none
}

var knownLanguages = []language{
	{Name: "Go", Files: []string{"go.mod", "go.work"}, Hosts: "@go"},
	{Name: "Node.js", Files: []string{"package.json"}, Hosts: "@npm", Scratch: "node_modules"},
	{Name: "Deno", Files: []string{"deno.json", "deno.jsonc"}},
	{Name: "Python", Files: []string{"pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "Pipfile"}, Hosts: "@pypi", Scratch: ".venv"},
	{Name: "Rust", Files: []string{"Cargo.toml"}, Hosts: "@crates", Scratch: "target"},
	{Name: "Java", Files: []string{"pom.xml", "build.gradle", "build.gradle.kts"}},
	{Name: "Ruby", Files: []string{"Gemfile", "*.gemspec"}},
	{Name: "PHP", Files: []string{"composer.json"}, Scratch: "vendor"},
	{Name: "Elixir", Files: []string{"mix.exs"}},
	{Name: ".NET", Files: []string{"*.sln", "*.csproj", "*.fsproj"}},
	{Name: "CMake", Files: []string{"CMakeLists.txt"}},
	{Name: "Meson", Files: []string{"meson.build"}},
	{Name: "Bazel", Files: []string{"MODULE.bazel", "WORKSPACE"}},
	{Name: "Terraform", Files: []string{"*.tf"}},
	{Name: "Make", Files: []string{"Makefile", "GNUmakefile"}},
	{Name: "Docker", Files: []string{"Dockerfile", "compose.yaml", "docker-compose.yml"}},
}

// languagesOf returns the languages and build tools of a project, by the entries at its top.
func languagesOf(entries []os.DirEntry) []language {
	var out []language
	for _, l := range knownLanguages {
		shows := func(entry os.DirEntry) bool {
			return slices.ContainsFunc(l.Files, func(pattern string) bool {
				ok, _ := filepath.Match(pattern, entry.Name())
				return ok
			})
		}
		if slices.ContainsFunc(entries, shows) {
			out = append(out, l)
		}
	}
	return out
}

// entriesOf returns the entries of dir; after an error, those that were read before it.
func entriesOf(dir string) []os.DirEntry {
	entries, _ := os.ReadDir(dir)
	return entries
}

// topDirs returns the names of the directories among entries, without those that begin with a dot.
func topDirs(entries []os.DirEntry) []string {
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), ".") {
			names = append(names, entry.Name())
		}
	}
	return names
}

// agentsOnPath returns the agents that are installed.
func (e *env) agentsOnPath() []string {
	var found []string
	for _, name := range profile.BuiltIn() {
		if e.ownProgram(name) != "" {
			found = append(found, name)
		}
	}
	return found
}

// nextRun proposes how to start an agent: by its verb.
func nextRun(agents []string) []string {
	var lines []string
	for _, name := range agents {
		lines = append(lines, "agentfense "+name)
	}
	if len(lines) == 0 {
		lines = []string{"agentfense run --name work -- COMMAND"}
	}
	return lines
}
