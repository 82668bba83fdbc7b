package risk

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/policyfile"
)

// example returns a path that a pattern of the table matches, below dir.
func example(dir, pattern string) vpath.Path {
	p := strings.TrimPrefix(pattern, "**/")
	if before, rest, ok := strings.Cut(p, "{"); ok {
		options, after, _ := strings.Cut(rest, "}")
		first, _, _ := strings.Cut(options, ",")
		p = before + first + after
	}
	p = strings.ReplaceAll(p, "*", "x")
	if strings.HasSuffix(p, "/") {
		p += "some/file"
	}
	return vpath.Path(dir + p)
}

func TestTableIsWellFormed(t *testing.T) {
	seen := map[string]bool{}
	for i, line := range strings.Split(strings.TrimSpace(builtInText), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "  ")
		if len(parts) != 3 || !slices.Contains([]string{"runs", "later", "state"}, parts[0]) || strings.Contains(parts[1], " ") || parts[2] != strings.TrimSpace(parts[2]) {
			t.Errorf("table.txt:%d: want LEVEL, PATTERN and REASON, two spaces between them: %q", i+1, line)
			continue
		}
		pattern := strings.ToLower(parts[1])
		if seen[pattern] {
			t.Errorf("table.txt:%d: %s is there twice", i+1, parts[1])
		}
		seen[pattern] = true
		inside := strings.TrimSuffix(strings.TrimPrefix(pattern, "**/"), "/")
		if strings.Contains(inside, "/") && !strings.HasPrefix(pattern, "**/") {
			t.Errorf("table.txt:%d: %s matches at the root alone: begin it with **/", i+1, parts[1])
		}
	}
	if len(seen) != len(builtIn().entries) {
		t.Errorf("%d lines, %d entries", len(seen), len(builtIn().entries))
	}
}

func TestEachEntryMarksAtAnyDepthAndCase(t *testing.T) {
	for _, e := range builtIn().entries {
		if e.isState {
			continue
		}
		for _, dir := range []string{"/", "/a/b c/"} {
			for _, p := range []vpath.Path{example(dir, e.Pattern), vpath.Path(strings.ToUpper(string(example(dir, e.Pattern))))} {
				got, ok := builtIn().At(p, false)
				if !ok || got.Runs != e.Runs && !got.Runs {
					t.Errorf("%s, of %s: %+v, want it to be as grave", p, e.Pattern, got)
				}
				if got.Reason == "" || strings.ContainsAny(got.Reason, "\"\\") {
					t.Errorf("%s: reason %q", p, got.Reason)
				}
			}
		}
	}
}

// TestOrdinaryFilesHaveNoMark: a mark on everything is none.
func TestOrdinaryFilesHaveNoMark(t *testing.T) {
	for _, p := range []vpath.Path{
		"/README.md", "/LICENSE", "/CHANGELOG.md", "/src/main.go", "/src/lib.rs", "/src/app.py", "/a/__init__.py", "/index.html", "/style.css",
		"/go.sum", "/docs/guide.md", "/data.json", "/data/config.json", "/conf.yaml", "/test/main_test.go", "/a/x.txt", "/.gitignore", "/.dockerignore",
		"/.npmignore", "/hooks/pre-commit", "/git/config", "/objects/a", "/refs/b", "/HEAD", "/config", "/x.git/notes", "/src/claude.ts",
		"/src/agents.py", "/build/out.txt", "/vscode/x", "/src/.gitkeep", "/a~1", "/a:b", "/notes.", "/environment.ts",
		"/configure.md", "/Dockerfiles/readme", "/src/dune.ml", "/.github/ISSUE_TEMPLATE/bug.md", "/.github/FUNDING.yml", "/photo.jpg",
	} {
		if e, ok := builtIn().At(p, false); ok {
			t.Errorf("%s is marked: %+v", p, e)
		}
	}
	for _, dir := range []vpath.Path{"/build", "/dune", "/configure", "/buck"} {
		if e, ok := builtIn().At(dir, true); ok {
			t.Errorf("the directory %s is marked: %+v", dir, e)
		}
	}
}

func TestOtherSpellingsOfAName(t *testing.T) {
	for _, p := range []vpath.Path{
		"/.GIT/config", "/.Git/CONFIG", "/.g\u200cit/config", "/\ufeff.git/config", "/.git\u200d/config",
		"/git~1/config", "/GIT~2/config", "/.git./config", "/.git /config", "/.git . ./config", "/.git::$INDEX_ALLOCATION/config", "/.git/config::$DATA",
		`/.git\config`, `/a/.GIT\CONFIG`, "/sub/.git", "/GITMOD~1", "/gi7eba~1", "/.gitmodule\u017f", "/.git\ufe0f/config",
	} {
		if e, ok := builtIn().At(p, false); !ok || !e.Runs {
			t.Errorf("%s: %+v, want it to run on the host", p, e)
		}
	}
	for _, p := range []vpath.Path{"/Ma\u212aefile", "/MA\u200bKEFILE", "/makefile.", "/makefile ", "/makefile:x", "/\xffx/Makefile"} {
		if _, ok := builtIn().At(p, false); !ok {
			t.Errorf("%s is not marked", p)
		}
	}
}

func TestMarksOfAProjectAreAdded(t *testing.T) {
	own := []policyfile.RiskFlag{{Pattern: "/ops/", Reason: "the deployer runs it"}, {Pattern: "*.Rules", Reason: "the engine obeys it"}, {Pattern: "**", Reason: "all"}}
	table, err := New(own)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[vpath.Path]string{"/ops/x": "the deployer runs it", "/a/B.RULES": "the engine obeys it", "/z": "all"} {
		if e, ok := table.At(p, false); !ok || e.Runs || e.Reason != want {
			t.Errorf("%s: %+v, want %q", p, e, want)
		}
	}
	for _, e := range builtIn().entries {
		if e.isState {
			continue
		}
		p := example("/ops/", e.Pattern)
		want, _ := builtIn().At(p, false)
		if got, ok := table.At(p, false); !ok || got != want {
			t.Errorf("%s: %+v with marks of a project, %+v without", p, got, want)
		}
	}
	if _, err := New([]policyfile.RiskFlag{{Pattern: "[", Reason: "x"}}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a malformed pattern: %v", err)
	}
}

func BenchmarkAt(b *testing.B) {
	var paths []vpath.Path
	for i := range 1000 {
		paths = append(paths, vpath.Path(fmt.Sprintf("/packages/p%d/node_modules/lib/src/file%d.js", i%37, i)))
	}
	table := builtIn()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		table.At(paths[i%len(paths)], false)
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := compile(parse(builtInText), nil); err != nil {
			b.Fatal(err)
		}
	}
}

func TestStateOfAProgramHasNoMark(t *testing.T) {
	withOwn, err := New([]policyfile.RiskFlag{{Pattern: "history.jsonl", Reason: "ours"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []vpath.Path{"/.claude/.credentials.json", "/home/me/.claude/history.jsonl", "/.claude/projects/-home-me/1.jsonl", "/.codex/auth.json", "/.codex/sessions/2026/01/02/x.jsonl", "/.gemini/tmp/x/chats/1.jsonl", "/.qwen/projects/x/chats/1.jsonl", "/.copilot/session-state/x/events.jsonl"} {
		if e, ok := builtIn().At(p, false); ok {
			t.Errorf("%s: %+v, want no mark", p, e)
		}
		e, ok := withOwn.At(p, false)
		if own := p.Base() == "history.jsonl"; ok != own || own && e.Reason != "ours" {
			t.Errorf("%s, with a mark of the project: %+v, %t", p, e, ok)
		}
	}
	for _, p := range []vpath.Path{"/.claude/settings.json", "/.claude/projects/x/memory/1.jsonl", "/.claude/projects/x/.git/hooks/a.jsonl", "/.claude/todos/x", "/.codex/config.toml", "/.gemini/settings.json", "/.gemini/tmp/x/y.jsonl", "/.qwen/settings.json", "/.copilot/mcp-config.json", "/.claude/projects/x/.mcp.json", "/auth.json", "/.git/hooks/.claude/history.jsonl"} {
		if _, ok := builtIn().At(p, false); !ok {
			t.Errorf("%s has no mark", p)
		}
	}
}
