package attack_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// marksOf are the risks that `diff --json` tells, by path.
func marksOf(t *testing.T, s *harness.Sandbox) map[string]string {
	t.Helper()
	var doc struct {
		Files []struct {
			Path   string `json:"path"`
			Risk   string `json:"risk"`
			Reason string `json:"risk_reason"`
		} `json:"files"`
	}
	if err := json.Unmarshal([]byte(agentfense(t, s, "diff", s.Name, "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	marks := map[string]string{}
	for _, f := range doc.Files {
		marks["/"+strings.TrimPrefix(f.Path, "/")] = f.Risk
		if (f.Risk == "") != (f.Reason == "") {
			t.Errorf("%s: risk %q with reason %q", f.Path, f.Risk, f.Reason)
		}
	}
	return marks
}

// wantMarks fails the test for each path that has another risk.
func wantMarks(t *testing.T, s *harness.Sandbox, want map[string]string) {
	t.Helper()
	got := marksOf(t, s)
	for path, risk := range want {
		if is, changed := got[path]; !changed || is != risk {
			t.Errorf("%s is marked %q (changed: %v), want %q", path, is, changed, risk)
		}
	}
}

// hostGit runs git as a person does who comes by, with no settings of their own.
func hostGit(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "HOME="+t.TempDir(), "GIT_CEILING_DIRECTORIES=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Real git runs the configuration of an embedded repository when a user enters it after an
// apply. The review marks it.
func TestEmbeddedRepositoryIsMarked(t *testing.T) {
	testenv.Command(t, "git")
	const config = `printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n\tfsmonitor = "touch %s/pwned; false"\n' "$OUT" > `
	for _, tt := range []struct {
		name   string
		source map[string]string
		script string
		enter  string
		want   map[string]string
	}{
		{
			"made whole under an innocent name",
			map[string]string{"a.txt": "a"},
			`mkdir -p site/objects site/refs site/hooks; echo 'ref: refs/heads/main' > site/HEAD; ` + config + `site/config; echo x > site/page.html`, "site",
			map[string]string{"/site/HEAD": "runs_on_host", "/site/config": "runs_on_host", "/site/page.html": "trusted_later"},
		},
		{
			"completed by a HEAD",
			map[string]string{"a.txt": "a", "data/objects/": "", "data/refs/": ""},
			`echo 'ref: refs/heads/main' > data/HEAD; ` + config + `data/config`, "data",
			map[string]string{"/data/HEAD": "runs_on_host", "/data/config": "runs_on_host"},
		},
		{
			"its configuration moved elsewhere",
			map[string]string{"a.txt": "a", ".git/HEAD": "ref: refs/heads/main\n", ".git/objects/": "", ".git/refs/": ""},
			`mkdir -p shared/objects shared/refs; echo ../shared > .git/commondir; ` + config + `shared/config`, ".",
			map[string]string{"/.git/commondir": "runs_on_host"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := harness.New(t, binary, tt.source)
			out := t.TempDir()
			wantCode(t, s.Run("OUT="+out+"\n"+tt.script, "--preset", "full-access"), 0)
			wantMarks(t, s, tt.want)
			applied := agentfense(t, s, "apply", s.Name)
			for path := range tt.want {
				if !strings.Contains(applied, strings.TrimPrefix(path, "/")+"\t! ") {
					t.Errorf("apply does not say the mark of %s:\n%s", path, applied)
				}
			}
			hostGit(t, filepath.Join(s.Source, tt.enter), "status")
			if !exists(filepath.Join(out, "pwned")) {
				t.Error("git did not run what was planted: the mark warns of nothing")
			}
		})
	}
}

// Files that tools of the host run or follow are marked under every name that a file system
// treats as equal.
func TestFilesThatToolsObeyAreMarked(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"a.txt": "a"}, who...)
		want := map[string]string{
			"/.hg/hgrc": "runs_on_host", "/.Rprofile": "trusted_later", "/.bazelrc": "trusted_later", "/.clinerules": "trusted_later",
			"/sub/.clinerules/x.md": "trusted_later", "/.pryrc": "trusted_later", "/.irbrc": "trusted_later", "/ansible.cfg": "trusted_later",
			"/.opencode/agent.md": "trusted_later", "/web/vite.config.mts": "trusted_later", "/.jj/repo/config.toml": "runs_on_host",
			"/git~1/config": "runs_on_host", "/.GIT/commondir": "runs_on_host", "/.git./hooks/x": "runs_on_host", "/AGENTS.md": "trusted_later",
			"/.git/packed-refs": "trusted_later", "/.git/worktrees/w/gitdir": "runs_on_host", "/notes.txt": "", "/src/main.c": "",
		}
		var script strings.Builder
		for path := range want {
			script.WriteString("mkdir -p '." + filepath.Dir(path) + "'; echo x > '." + path + "'\n")
		}
		script.WriteString("mkdir -p .g$(printf '\\342\\200\\214')it; echo x > .g$(printf '\\342\\200\\214')it/config\n")
		wantCode(t, s.Run("set -e\n"+script.String(), "--preset", "full-access"), 0)
		want[`/.g\u{200c}it/config`] = "runs_on_host"
		wantMarks(t, s, want)
	})
}

// A link is marked by its final target, through any number of links.
func TestLinksThroughLinksAreMarked(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{"dir/file": "x", "lib/a": "x", ".git/config": "[core]\n"}, who...)
		if err := os.Symlink("..", filepath.Join(s.Source, "dir/up")); err != nil {
			t.Fatal(err)
		}
		wantCode(t, s.Run(`set -e
ln -s dir/up/.. out; ln -s out/../etc far; ln -s loop2 loop1; ln -s loop1 loop2
ln -s dir/up/.git/config cfg; ln -s dir/up/lib/a fine; ln -s nowhere dangling`, "--preset", "full-access"), 0)
		wantMarks(t, s, map[string]string{
			"/out": "trusted_later", "/far": "trusted_later", "/loop1": "trusted_later", "/loop2": "trusted_later",
			"/cfg": "trusted_later", "/fine": "", "/dangling": "",
		})
	})
}

// A project can add marks in its policy file, and cannot remove any.
func TestProjectMarksAreAdded(t *testing.T) {
	s := harness.New(t, binary, map[string]string{".agentfense.yaml": `version: 1
preset: agent-safe
rules: []
marks:
  - {pattern: "/output/deploy/", reason: "the deployer runs it"}
  - {pattern: "**", reason: "anything else"}
`})
	wantCode(t, s.Run("mkdir -p output/deploy output/x; echo x > output/deploy/a; echo x > output/x/.bashrc; echo x > output/b"), 0)
	wantMarks(t, s, map[string]string{"/output/deploy/a": "trusted_later", "/output/x/.bashrc": "runs_on_host", "/output/b": "trusted_later"})
	if out := agentfense(t, s, "diff", s.Name); !strings.Contains(out, "output/deploy/a (the deployer runs it)") || !strings.Contains(out, "(shell start-up file)") {
		t.Errorf("diff does not say the reasons:\n%s", out)
	}
}

// If a link has a name that a tool looks for, both the link and its target are marked,
// whether the sandbox or the source has the link.
func TestWhatLinksGiveAnotherNameIsMarked(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"config/editor/x": "x", "docs/agents.txt": "x", "prompts/x": "x", "lib/a": "x", ".claude/settings.json": "{}", "template/hgrc": "x",
		}, who...)
		for link, target := range map[string]string{
			".vscode": "config/editor", "CLAUDE.md": "docs/agents.txt", ".claude/commands": "../prompts", "same": "lib",
		} {
			if err := os.Symlink(target, filepath.Join(s.Source, link)); err != nil {
				t.Fatal(err)
			}
		}
		wantCode(t, s.Run(`set -e
mkdir data inner; echo x > data/hgrc; ln -s data .hg; ln -s ../text inner/.bashrc; echo x > text
ln -s chain .jj; mkdir chain deep; ln -s ../deep chain/repo; echo x > deep/config.toml
mkdir sub; ln -s ../template sub/.hg
mkdir pkg; echo x > pkg/index.js; for i in $(seq 100); do mkdir -p n/$i; ln -s ../../pkg n/$i/pkg; done
mkdir odd; echo x > odd/file; for i in $(seq 100); do mkdir -p o/$i; ln -s ../../odd o/$i/.hg; done
echo x > config/editor/tasks.json; echo y > docs/agents.txt; echo x > prompts/new; echo x > lib/b; echo x > other`, "--preset", "full-access"), 0)
		wantMarks(t, s, map[string]string{
			"/data/hgrc": "runs_on_host", "/.hg": "trusted_later", "/text": "runs_on_host", "/deep/config.toml": "runs_on_host",
			"/sub/.hg": "trusted_later", "/config/editor/tasks.json": "trusted_later", "/docs/agents.txt": "trusted_later",
			"/pkg/index.js": "", "/odd/file": "trusted_later", "/prompts/new": "trusted_later", "/lib/b": "", "/other": "",
		})
	})
}

// If a directory becomes a repository, changes below its objects and refs are still listed.
func TestWhatLiesAmongRefsKeepsItsMark(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"refs/a.txt": "a", "objects/a.txt": "a", "HEAD": "ref: refs/heads/main\n"})
	wantCode(t, s.Run("mkdir refs/.vscode; echo x > refs/.vscode/tasks.json; echo x > objects/.envrc; echo x > refs/.bashrc; echo x > refs/b.txt", "--preset", "full-access"), 0)
	wantMarks(t, s, map[string]string{
		"/refs/.vscode/tasks.json": "trusted_later", "/objects/.envrc": "trusted_later", "/refs/.bashrc": "runs_on_host", "/refs/b.txt": "",
	})
}
