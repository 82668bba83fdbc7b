package sandbox

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

func TestMarkFor(t *testing.T) {
	const file, script, link, dir = unix.S_IFREG | 0o644, unix.S_IFREG | 0o755, unix.S_IFLNK | 0o777, unix.S_IFDIR | 0o755
	tests := []struct {
		name      string
		path      vpath.Path
		was, mode uint32
		target    string
		want      Risk
	}{
		{"an ordinary file", "/src/main.go", 0, file, "", NoRisk},
		{"a new program", "/src/run", 0, script, "", RunsOnHost},
		{"a program that is no more", "/src/run", script, 0, "", NoRisk},
		{"a directory is no program", "/src/dir", 0, dir, "", NoRisk},
		{"a git hook", "/sub/.git/hooks/pre-commit", 0, file, "", RunsOnHost},
		{"git's configuration", "/.git/config", file, file, "", RunsOnHost},
		{"git's configuration in other letters", "/.GIT/Config", file, file, "", RunsOnHost},
		{"a worktree's pointer", "/.git", 0, file, "", RunsOnHost},
		{"a commit is nothing special", "/.git/objects/ab/cdef", 0, unix.S_IFREG | 0o444, "", NoRisk},
		{"git's lock left behind", "/.git/index.lock", 0, file, "", TrustedLater},
		{"submodules", "/.gitmodules", 0, file, "", RunsOnHost},
		{"shell start-up", "/.bashrc", 0, file, "", RunsOnHost},
		{"an installed program", "/node_modules/.bin/tsc", 0, link, "../typescript/bin/tsc", RunsOnHost},
		{"an environment", "/a/.envrc", 0, file, "", TrustedLater},
		{"editor tasks", "/.vscode/tasks.json", 0, file, "", TrustedLater},
		{"an agent's settings", "/.claude/settings.local.json", 0, file, "", TrustedLater},
		{"an agent's tools", "/.mcp.json", 0, file, "", TrustedLater},
		{"an agent's orders", "/CLAUDE.md", file, file, "", TrustedLater},
		{"package scripts", "/web/package.json", file, file, "", TrustedLater},
		{"a makefile", "/Makefile", file, file, "", TrustedLater},
		{"test set-up", "/tests/conftest.py", file, file, "", TrustedLater},
		{"compiled python", "/a/__pycache__/x.cpython-312.pyc", 0, file, "", TrustedLater},
		{"a workflow", "/.github/workflows/ci.yml", 0, file, "", TrustedLater},
		{"a link inside", "/a/l", 0, link, "../b/c", NoRisk},
		{"a link to the root of the host", "/a/l", 0, link, "/etc/passwd", TrustedLater},
		{"a link out by steps", "/a/l", 0, link, "../../etc", TrustedLater},
		{"a link that comes back is out on its way", "/l", 0, link, "../src/x", TrustedLater},
		{"a link in place of a directory", "/a", dir, link, "b", TrustedLater},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := NoRisk
			if m := markFor(tt.path, tt.was, tt.mode, tt.target); m != nil {
				got = m.Risk
				if m.Reason == "" {
					t.Error("the mark has no reason")
				}
			}
			if got != tt.want {
				t.Errorf("risk = %q, want %q", got, tt.want)
			}
		})
	}
}
