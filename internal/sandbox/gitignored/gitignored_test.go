package gitignored_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/gitignored"
)

var candidates = []gitignored.Candidate{
	{Name: "node_modules", Makers: []string{"package.json"}},
	{Name: "target", Makers: []string{"Cargo.toml"}, Needed: true},
	{Name: ".venv"},
}

// put makes files; a path that ends with a slash is a directory, and content "->x" a link to x.
func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		to, isLink := strings.CutPrefix(content, "->")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		case isLink:
			err = os.Symlink(to, path)
		default:
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.fsmonitor=false"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func TestIn(t *testing.T) {
	testenv.Command(t, "git")
	all := "node_modules/\ntarget\n.venv\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		sub   string   // the directory that is asked for
		add   []string // to git's index
		want  string
	}{
		{name: "what is there, or will be", files: map[string]string{".gitignore": all, "package.json": "", "Cargo.toml": "", ".venv/x": ""}, want: "node_modules target .venv"},
		{name: "what nothing makes", files: map[string]string{".gitignore": all}},
		{name: "what exists without what makes it", files: map[string]string{".gitignore": all, "node_modules/x": "", "target/x": ""}, want: "node_modules"},
		{name: "what is not ignored", files: map[string]string{"node_modules/x": "", ".venv/x": ""}},
		{name: "what a pattern takes back in", files: map[string]string{".gitignore": all + "!node_modules/\n", "node_modules/x": ""}},
		{name: "a file tracked in it", files: map[string]string{".gitignore": all, "node_modules/a/b": "", ".venv/x": ""}, add: []string{"node_modules/a/b"}, want: ".venv"},
		{name: "a file of another name tracked", files: map[string]string{".gitignore": all, "node_modules2/b": "", "node_modules/x": ""}, add: []string{"node_modules2/b"}, want: "node_modules"},
		{name: "below the root of the repository", files: map[string]string{".gitignore": all, "a/b/package.json": ""}, sub: "a/b", want: "node_modules"},
		{name: "a nearer file takes it back in", files: map[string]string{".gitignore": all, "a/.gitignore": "!node_modules\n", "a/b/package.json": ""}, sub: "a/b"},
		{name: "a pattern of a directory above", files: map[string]string{"a/.gitignore": "/b/node_modules\n", "a/b/package.json": "", "a/c/package.json": ""}, sub: "a/b", want: "node_modules"},
		{name: "the exclude file", files: map[string]string{".git/info/exclude": "node_modules\n", "package.json": ""}, want: "node_modules"},
		{name: "a link", files: map[string]string{".gitignore": "node_modules\n", "node_modules": "->/etc", "package.json": ""}},
		{name: "a file", files: map[string]string{".gitignore": all, ".venv": "x"}},
		{name: "a separate repository", files: map[string]string{".gitignore": all, ".venv/.git/": ""}},
		{name: "rules behind a link", files: map[string]string{"rules": all, ".gitignore": "->rules", "package.json": ""}},
		{name: "rules that are too long", files: map[string]string{".gitignore": all + strings.Repeat("#\n", 1<<17), "package.json": ""}},
		{name: "an index that cannot be read", files: map[string]string{".gitignore": all, ".git/index": "DIRC", "package.json": ""}},
		{name: "an index that is a link", files: map[string]string{".gitignore": all, ".git/index": "->../x", "x": "", "package.json": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			git(t, root, "init", "--quiet")
			if _, has := test.files[".git/info/exclude"]; has {
				os.Remove(filepath.Join(root, ".git/info/exclude"))
			}
			put(t, root, test.files)
			if len(test.add) > 0 {
				git(t, root, append([]string{"add", "--force", "--"}, test.add...)...)
			}
			got := gitignored.In(filepath.Join(root, test.sub), candidates)
			if !slices.Equal(got, strings.Fields(test.want)) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Without a repository that has its own .git directory, git ignores nothing that is known.
func TestInNoWorkTree(t *testing.T) {
	for name, file := range map[string]string{"no repository": "x", "a linked work tree": ".git"} {
		root := t.TempDir()
		put(t, root, map[string]string{file: "gitdir: /x\n", ".gitignore": "node_modules\n", "package.json": ""})
		if got := gitignored.In(root, candidates); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
}
