package review

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/risk"
	"github.com/agentfense/agentfense/internal/view/layer"
)

func TestMarksByPathAndMode(t *testing.T) {
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
		{"a build script that can be started", "/gradlew", 0, script, "", RunsOnHost},
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
	m, err := marks((&changes.Work{Sandbox: &record.Sandbox{}}))
	if err != nil {
		t.Fatal(err)
	}
	m.tree.known = map[vpath.Path]sourceEntry{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := t.TempDir()
			m.tree.stack = stackOver(t, source)
			clear(m.tree.known)
			got := NoRisk
			if mark := m.of(tt.path, tt.was, Side{Mode: tt.mode, Target: tt.target}); mark != nil {
				got = mark.Risk
				if mark.Reason == "" {
					t.Error("the mark has no reason")
				}
			}
			if got != tt.want {
				t.Errorf("risk = %q, want %q", got, tt.want)
			}
		})
	}
}

// stackOver opens an empty delta over a directory.
func stackOver(t *testing.T, source string) *layer.Stack {
	t.Helper()
	dir, err := os.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	stack, err := layer.Open(layer.Options{Source: dir, Dir: filepath.Join(t.TempDir(), "layers")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stack.Close() })
	return stack
}

// planted is what a source has, or a delta makes, at a path, with the target of a link.
type planted struct {
	path   string
	mode   uint32
	target string
}

// TestMarksComeFromTheTreeAsItWillBe gives a source, what a delta adds to it,
// and the marks that the additions get.
func TestMarksComeFromTheTreeAsItWillBe(t *testing.T) {
	const file, link, dir = unix.S_IFREG | 0o644, unix.S_IFLNK | 0o777, unix.S_IFDIR | 0o755
	f := func(path string) planted { return planted{path: path, mode: file} }
	d := func(path string) planted { return planted{path: path, mode: dir} }
	l := func(path, target string) planted { return planted{path, link, target} }
	tests := []struct {
		name   string
		source []planted
		delta  []planted
		want   map[string]Risk
	}{
		{
			"a bare repository under any name", nil,
			[]planted{d("/site"), f("/site/HEAD"), d("/site/objects"), d("/site/refs"), f("/site/config"), f("/site/hooks/x"), f("/site/objects/ab/cd"), f("/site/readme")},
			map[string]Risk{"/site/HEAD": RunsOnHost, "/site/config": RunsOnHost, "/site/hooks/x": RunsOnHost, "/site/readme": TrustedLater},
		},
		{
			"a HEAD for the objects and refs that the source has",
			[]planted{d("/fixture/objects"), d("/fixture/refs"), f("/fixture/config")},
			[]planted{f("/fixture/HEAD")},
			map[string]Risk{"/fixture/HEAD": RunsOnHost},
		},
		{
			"refs alone complete it",
			[]planted{f("/r/HEAD"), d("/r/objects"), f("/r/config")},
			[]planted{d("/r/refs"), f("/r/refs/keep")},
			map[string]Risk{"/r/refs": RunsOnHost, "/r/refs/keep": RunsOnHost},
		},
		{
			"the configuration of a repository of the source",
			[]planted{d("/r/objects"), d("/r/refs"), f("/r/HEAD")},
			[]planted{f("/r/config"), f("/r/objects/ab/cd"), f("/r/refs/heads/x")},
			map[string]Risk{"/r/config": RunsOnHost},
		},
		{"a commondir", nil, []planted{d("/w"), f("/w/HEAD"), f("/w/commondir")}, map[string]Risk{"/w/HEAD": RunsOnHost, "/w/commondir": RunsOnHost}},
		{
			"in the letters of a file system that ignores case", nil,
			[]planted{d("/S"), f("/S/head"), d("/S/Objects"), d("/S/REFS"), f("/S/Config")},
			map[string]Risk{"/S/head": RunsOnHost, "/S/Config": RunsOnHost},
		},
		{"a part of it is none", nil, []planted{d("/a"), f("/a/HEAD"), d("/a/objects"), f("/a/config")}, map[string]Risk{}},
		{
			"the objects of a submodule are those of a repository",
			[]planted{f("/.git/modules/m/HEAD"), d("/.git/modules/m/objects"), d("/.git/modules/m/refs")},
			[]planted{f("/.git/modules/m/objects/ab/cd"), f("/.git/modules/m/index"), f("/.git/modules/m/config"), f("/.git/modules/objects/config")},
			map[string]Risk{"/.git/modules/m/index": RunsOnHost, "/.git/modules/m/config": RunsOnHost, "/.git/modules/objects/config": RunsOnHost},
		},
		{
			"git's own state",
			[]planted{f("/.git/HEAD"), d("/.git/objects"), d("/.git/refs")},
			[]planted{f("/.git/index"), f("/.git/HEAD"), f("/.git/logs/HEAD"), f("/.git/new"), f("/.git/refs/heads/Makefile"), f("/.git/objects/ab/cd"), f("/.git/objects/info/alternates")},
			map[string]Risk{"/.git/index": TrustedLater, "/.git/HEAD": TrustedLater, "/.git/logs/HEAD": TrustedLater, "/.git/new": TrustedLater, "/.git/objects/info/alternates": TrustedLater},
		},
		{"a link through a link of the delta", nil, []planted{d("/a"), l("/a/up", "../b"), l("/b", ".."), f("/c")}, map[string]Risk{"/b": TrustedLater, "/a/up": TrustedLater}},
		{"a link through a link of the source", []planted{l("/etc", "/etc"), d("/d")}, []planted{l("/d/pw", "../etc/passwd")}, map[string]Risk{"/d/pw": TrustedLater}},
		{"a link through a link that the delta replaces", []planted{l("/way", "/etc")}, []planted{d("/way"), l("/x", "way/passwd")}, map[string]Risk{"/x": TrustedLater}},
		{"links in a circle", nil, []planted{l("/a", "b"), l("/b", "a")}, map[string]Risk{"/a": TrustedLater, "/b": TrustedLater}},
		{
			"a link into git's directory",
			[]planted{f("/.git/config")},
			[]planted{l("/x", ".git/config"), l("/y", "z/objects"), l("/z", ".git")},
			map[string]Risk{"/x": TrustedLater, "/y": TrustedLater, "/z": TrustedLater},
		},
		{"a link onto what is marked", []planted{f("/Makefile")}, []planted{l("/x", "sub/../Makefile"), d("/sub")}, map[string]Risk{"/x": TrustedLater}},
		{"links inside are nothing special", []planted{f("/src/a"), l("/lib", "src")}, []planted{l("/x", "lib/a"), l("/y", "./src/../src"), l("/dangling", "no/where")}, map[string]Risk{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := t.TempDir()
			for _, p := range tt.source {
				plant(t, source, p)
			}
			stack := stackOver(t, source)
			got := map[string]Risk{}
			changes := makeDelta(t, stack, tt.delta)
			m := &marker{table: mustTable(t), tree: newFutureTree(stack, changes), repos: map[vpath.Path]repository{}}
			for _, p := range tt.delta {
				if mark := m.of(vpath.Path(p.path), 0, Side{Mode: p.mode, Target: p.target}); mark != nil {
					got[p.path] = mark.Risk
				}
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("marks (-want +got):\n%s", d)
			}
		})
	}
}

func mustTable(t *testing.T) *risk.Table {
	t.Helper()
	table, err := risk.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// plant makes p below dir, with the directories above it.
func plant(t *testing.T, dir string, p planted) {
	t.Helper()
	full := filepath.Join(dir, p.path)
	err := os.MkdirAll(filepath.Dir(full), 0o755)
	if err == nil {
		switch p.mode & record.TypeBits {
		case unix.S_IFDIR:
			err = os.MkdirAll(full, 0o755)
		case unix.S_IFLNK:
			err = os.Symlink(p.target, full)
		default:
			err = os.WriteFile(full, nil, 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeDelta makes paths in a delta, in place of what is there, and returns the
// changes.
func makeDelta(t *testing.T, stack *layer.Stack, paths []planted) []layer.Change {
	t.Helper()
	for _, p := range paths {
		path := vpath.Path(p.path)
		for dir := range path.Ancestors() {
			if _, err := stack.Lookup(dir); errdefs.Is(err, errdefs.NotFound) {
				_, err = stack.Mkdir(dir, 0o755)
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		is, err := stack.Lookup(path)
		if err == nil && !is.IsDir() {
			_, err = stack.Unlink(path, false)
		}
		if err != nil && !errdefs.Is(err, errdefs.NotFound) {
			t.Fatal(err)
		}
		switch p.mode & record.TypeBits {
		case unix.S_IFDIR:
			_, err = stack.Mkdir(path, 0o755)
		case unix.S_IFLNK:
			_, err = stack.Symlink(p.target, path)
		default:
			_, err = stack.Mknod(path, unix.S_IFREG|0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	changes, err := stack.Changes()
	if err != nil {
		t.Fatal(err)
	}
	return changes
}
