package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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

// knownAgents are the programs of coding agents.
var knownAgents = []string{"claude", "codex", "gemini", "opencode", "aider", "goose", "cursor-agent", "qwen", "copilot"}

// languagesOf returns the languages and build tools of dir, by the files at its top.
func languagesOf(dir string) []language {
	var out []language
	names := namesIn(dir)
	for _, l := range knownLanguages {
		shows := func(name string) bool {
			return slices.ContainsFunc(l.Files, func(pattern string) bool {
				ok, _ := filepath.Match(pattern, name)
				return ok
			})
		}
		if slices.ContainsFunc(names, shows) {
			out = append(out, l)
		}
	}
	return out
}

func namesIn(dir string) []string {
	var names []string
	entries, _ := os.ReadDir(dir) // the entries read before an error count
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// topDirs returns the names of the directories in dir, without those that begin with a dot.
func topDirs(dir string) []string {
	var names []string
	entries, _ := os.ReadDir(dir)
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
	for _, name := range knownAgents {
		for _, dir := range filepath.SplitList(e.getenv("PATH")) {
			if !filepath.IsAbs(dir) {
				continue // a relative entry finds what a project ships
			}
			if _, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// nextRun proposes how to start an agent: by its verb, if this program has one.
func nextRun(root *cobra.Command, agents []string) []string {
	var lines []string
	for _, name := range agents {
		verb, _, err := root.Find([]string{name})
		if err == nil && verb != root && !verb.Hidden {
			lines = append(lines, "agentfense "+name)
		}
	}
	if len(lines) == 0 {
		lines = []string{"agentfense run --name work -- COMMAND"}
	}
	return lines
}
