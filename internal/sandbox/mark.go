package sandbox

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// Risk says how a changed file could act outside of the sandbox once it is
// applied.
type Risk uint8

// The risks, the gravest last.
const (
	NoRisk       Risk = iota
	TrustedLater      // tools of the host read it and do what it says
	RunsOnHost        // git, or who starts it by name, runs it
)

var (
	riskNames = [...]string{NoRisk: "", TrustedLater: "trusted later", RunsOnHost: "runs on the host"}
	riskWords = [...]string{NoRisk: "", TrustedLater: "trusted_later", RunsOnHost: "runs_on_host"}
)

// String returns the words that people see.
func (r Risk) String() string { return riskNames[r] }

// MarshalText returns the API's word.
func (r Risk) MarshalText() ([]byte, error) { return []byte(riskWords[r]), nil }

// Mark is a risk and what makes it one: "git hook".
type Mark struct {
	Risk   Risk   `json:"risk"`
	Reason string `json:"risk_reason"`
}

// markFor returns the mark of a change at p from what was to what is there,
// nil if it is a file like any other. mode is 0 where there is nothing, target
// that of a new symbolic link. Names are compared without regard to case,
// because a file system may.
func markFor(p vpath.Path, was, mode uint32, target string) *Mark {
	if m, ok := markByPath(strings.ToLower(string(p))); ok {
		return &m
	}
	switch {
	case mode&typeBits == unix.S_IFREG && mode&0o111 != 0:
		return &Mark{RunsOnHost, "executable"}
	case mode&typeBits == unix.S_IFLNK && leadsOut(p, target):
		return &Mark{TrustedLater, "link out of the source"}
	case mode&typeBits == unix.S_IFLNK && was&typeBits == unix.S_IFDIR:
		return &Mark{TrustedLater, "link instead of a directory"}
	}
	return nil
}

// markByPath looks a lower-case path up in the tables below. The gravest wins.
func markByPath(p string) (Mark, bool) {
	best, found := markedNames[path.Base(p)]
	better := func(m Mark, ok bool) {
		if ok && (!found || m.Risk > best.Risk) {
			best, found = m, true
		}
	}
	for suffix, m := range markedSuffixes {
		better(m, strings.HasSuffix(p, suffix))
	}
	elements := strings.Split(p[1:], "/")
	for i, e := range elements {
		m, ok := markedDirs[e]
		better(m, ok)
		if i+1 < len(elements) {
			m, ok = markedDirs[e+"/"+elements[i+1]]
			better(m, ok)
		}
	}
	return best, found
}

// leadsOut reports whether a link at p points out of the source, as far as
// its text tells.
func leadsOut(p vpath.Path, target string) bool {
	if path.IsAbs(target) {
		return true
	}
	depth := strings.Count(string(p), "/") - 1
	for e := range strings.SplitSeq(target, "/") {
		switch e {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// markedDirs are the directories, by one element or two, that are marked with
// all below.
var markedDirs = table(
	marks{RunsOnHost, "git hook", ".git/hooks .husky .githooks"},
	marks{RunsOnHost, "git's configuration", ".git/config .git/config.worktree .git/modules .git/worktrees .git/info .git/rebase-merge .git/sequencer"},
	marks{TrustedLater, "git lock file", ".git/index.lock .git/config.lock .git/head.lock"},
	marks{RunsOnHost, "installed program", ".venv/bin venv/bin node_modules/.bin"},
	marks{RunsOnHost, "started at login", ".config/autostart .config/systemd"},
	marks{TrustedLater, "editor settings", ".vscode .idea .zed .devcontainer .config/nvim .vim"},
	marks{TrustedLater, "settings of an agent", ".claude .cursor .codex .gemini .continue .windsurf .aider .roo .kiro .github/copilot-instructions.md"},
	marks{TrustedLater, "continuous integration", ".github/workflows .github/actions .circleci .buildkite .gitlab .woodpecker"},
	marks{TrustedLater, "settings of a package manager", ".cargo .bundle .yarn .mvn gradle/wrapper"},
	marks{TrustedLater, "keys and settings of ssh", ".ssh"},
)

// markedNames are file names that mean the same in every directory.
var markedNames = table(
	marks{RunsOnHost, "git's configuration", ".gitmodules .gitconfig .git"},
	marks{RunsOnHost, "shell start-up file", ".bashrc .bash_profile .bash_login .bash_logout .profile .zshrc .zshenv .zprofile .zlogin .kshrc .cshrc .tcshrc .login .inputrc .xprofile .xinitrc"},
	marks{TrustedLater, "environment of a directory", ".envrc .env.local .tool-versions mise.toml .mise.toml .direnvrc"},
	marks{TrustedLater, "git attributes", ".gitattributes"},
	marks{TrustedLater, "settings of an agent", ".mcp.json mcp.json agents.md claude.md claude.local.md gemini.md .cursorrules .windsurfrules .clinerules .aider.conf.yml .agentfense.yaml"},
	marks{TrustedLater, "hook runner", ".pre-commit-config.yaml .pre-commit-config.yml lefthook.yml .lefthook.yml .overcommit.yml"},
	marks{TrustedLater, "build script", "makefile gnumakefile justfile .justfile taskfile.yml taskfile.yaml rakefile cmakelists.txt meson.build build.rs build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradlew pom.xml build.xml build.ninja wscript sconstruct sconscript dockerfile containerfile docker-compose.yml docker-compose.yaml compose.yml compose.yaml vagrantfile procfile jenkinsfile .gitlab-ci.yml .travis.yml azure-pipelines.yml configure flake.nix shell.nix default.nix"},
	marks{TrustedLater, "package scripts", "package.json setup.py setup.cfg pyproject.toml gemfile composer.json podfile binding.gyp"},
	marks{TrustedLater, "settings of a package manager", ".npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnpmfile.mjs pnpm-workspace.yaml .pypirc pip.conf .condarc bunfig.toml .terraformrc"},
	marks{TrustedLater, "runs with the tests", "conftest.py noxfile.py tox.ini pytest.ini .coveragerc sitecustomize.py usercustomize.py jest.config.js jest.config.ts vitest.config.ts vite.config.js vite.config.ts webpack.config.js babel.config.js .babelrc .babelrc.js eslint.config.js .eslintrc.js .prettierrc.js gruntfile.js gulpfile.js"},
	marks{TrustedLater, "editor settings", ".exrc .vimrc .nvimrc .nvim.lua .dir-locals.el .emacs"},
)

// markedSuffixes are the endings of names.
var markedSuffixes = table(
	marks{TrustedLater, "compiled python", ".pyc .pyo"},
	marks{TrustedLater, "python path file", ".pth"},
	marks{TrustedLater, "build script", ".mk .cmake .bazel .gradle"},
	marks{TrustedLater, "editor settings", ".code-workspace"},
)

// marks gives the same mark to some names, separated by spaces.
type marks struct {
	risk   Risk
	reason string
	names  string
}

func table(groups ...marks) map[string]Mark {
	m := map[string]Mark{}
	for _, g := range groups {
		for name := range strings.FieldsSeq(g.names) {
			m[name] = Mark{g.risk, g.reason}
		}
	}
	return m
}
