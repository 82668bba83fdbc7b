package attack_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// What a command inside names like an installed package, like what git ignores, or
// like git's own record is shown all the same, if git tracks it or the host runs it.
func TestGroupsHideNothing(t *testing.T) {
	testenv.Command(t, "git")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"a.txt": "a\n", "src/main.py": "1\n", ".gitignore": "build/\nnode_modules\n", "package-lock.json": "{}\n",
			"node_modules/patched.js": "1\n", "env/app.py": "1\n", "venv/app.py": "1\n", "build/out": "1\n",
			"web/.gitignore": "*.js\nout/\n!kept/\n", "web/kept/a": "1\n", "__pycache__/tracked.pyc": "1\n",
			".pytest_cache/CACHEDIR.TAG": "tag\n", ".pytest_cache/conftest.py": "1\n",
		}, who...)
		gitIn(t, s.Source, "init", "-q", "-b", "main")
		gitIn(t, s.Source, "add", ".")
		gitIn(t, s.Source, "add", "-f", "node_modules")
		gitIn(t, s.Source, "commit", "-q", "-m", "first")
		for _, name := range []string{"build/dep/.git/HEAD", "build/dep/lib.c", ".mypy_cache/app.py", ".ruff_cache/CACHEDIR.TAG", "lib/app.py"} {
			writeIn(t, s.Source, name)
		}
		ownAll(t, s)
		r := s.Run(hideInGroups, "--preset", "full-access")
		wantCode(t, r, 0)
		patch, stat := agentfense(t, s, "diff", s.Name), agentfense(t, s, "diff", s.Name, "--stat")
		discarded := "\n" + agentfense(t, s, "discard", s.Name, "--dry-run")
		for _, name := range []string{
			// a directory that is not new, whatever is put into it or made of it
			"env/app.py", "env/pyvenv.cfg", "venv/app.py", "venv/pyvenv.cfg",
			// tracked, or beside what is tracked, below what git is told to ignore
			"node_modules/patched.js", "node_modules/new.js", "src/main.py", ".gitignore",
			// named like what a tool generates, without what the tool leaves there
			"target/hook.py",
			// with a mark, below what is installed
			".venv/.bashrc", ".venv/link", ".venv/.git/config", ".venv/.git/hooks/post-checkout", "sub/node_modules/.husky/pre-push",
			"build/.envrc",
			// below a directory that only the sandbox's own rules exclude, or that rules take back
			// in
			"lib/.gitignore", "lib/app.py", "lib/new.py", "web/kept/a", "later/new.py", ".git/info/exclude",
			// a cache that git tracks a file of, one without a tag of the source, and marks in one
			".pytest_cache/conftest.py", ".pytest_cache/new.py", ".mypy_cache/app.py", ".ruff_cache/run", ".ruff_cache/.envrc",
			// compiled Python that git tracks, or that is more than that
			"__pycache__/tracked.pyc", "lib/__pycache__/run.pyc", "lib/__pycache__/link.pyc", "lib/__pycache__/new.py",
			// a repository of its own below what git ignores
			"build/dep/lib.c",
			// below .git, but no record of git's
			".git/hooks/pre-commit", ".git/hooks/a.sample/pre-commit", ".git/objects/evil.sh", ".git/config", ".git/info/attributes",
			".git/objects/aa/00000000000000000000000000000000000000", ".git/refs/heads/run",
		} {
			if !strings.Contains(patch, " b/"+name+"\n") {
				t.Errorf("diff does not show %s", name)
			}
			if !strings.Contains(stat, " "+name+" ") {
				t.Errorf("diff --stat does not show %s", name)
			}
			if !strings.Contains(discarded, "\n"+name+"\n") {
				t.Errorf("discard does not list %s", name)
			}
		}
		for what, text := range map[string]string{"diff": patch, "diff --stat": stat, "discard": discarded, "the summary": r.Stderr} {
			if strings.ContainsAny(text, "\x1b\a") {
				t.Errorf("%s acts on the terminal: %q", what, text)
			}
		}
		if !strings.Contains(patch, "# .venv: ") || !strings.Contains(r.Stderr, "src/main.py") && !strings.Contains(r.Stderr, " more\n") {
			t.Errorf("the groups or the source change are not shown:\n%s\n%s", r.Stderr, patch)
		}
		if t.Failed() {
			t.Logf("diff:\n%s", stat)
		}
	})
}

// The one source file that changed is in the summary after an install of thousands of
// files, whoever runs it, and the summary is short.
func TestASummaryOfAnInstallShowsTheSourceFile(t *testing.T) {
	testenv.Command(t, "git")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"a.txt": "a\n", "src/app.js": "1\n", ".gitignore": "node_modules\n", "package.json": "{}\n", "package-lock.json": "{}\n",
		}, who...)
		gitIn(t, s.Source, "init", "-q", "-b", "main")
		gitIn(t, s.Source, "add", ".")
		gitIn(t, s.Source, "commit", "-q", "-m", "first")
		ownAll(t, s)
		r := s.Run(manyFiles, "--preset", "development")
		wantCode(t, r, 0)
		lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
		if len(lines) > 15 || !slices.Contains(lines, "  M src/app.js") {
			t.Errorf("got %d lines:\n%s", len(lines), r.Stderr)
		}
		for _, want := range []string{"  node_modules: 6120 files, packages of a lock file  ! ", "60 package scripts", "files, 1 commit on branch main: \"Install\""} {
			if !strings.Contains(r.Stderr, want) {
				t.Errorf("no %q in\n%s", want, r.Stderr)
			}
		}
	})
}

const manyFiles = `set -e
mkdir -p node_modules/.bin
for i in $(seq 60); do
	mkdir node_modules/p$i
	for j in $(seq 100); do echo $j > node_modules/p$i/f$j.js; done
	echo '{}' > node_modules/p$i/package.json
	ln -s ../p$i/f1.js node_modules/.bin/p$i
done
echo 2 > src/app.js; echo '{"a": 1}' > package-lock.json
git -c user.name=a -c user.email=a@example.org commit -q -a -m Install
`

// writeIn writes a file of a line below dir.
func writeIn(t *testing.T, dir, name string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

const hideInGroups = `set -e
echo 2 > src/main.py; echo src >> .gitignore
git rm -q -r --cached src
echo 2 > env/app.py; echo home > env/pyvenv.cfg
rm -rf venv; mkdir venv; echo 2 > venv/app.py; echo home > venv/pyvenv.cfg
echo 2 > node_modules/patched.js; echo 2 > node_modules/new.js
mkdir target; echo 2 > target/hook.py
mkdir -p .venv/.git/hooks sub/node_modules/.husky; echo home > .venv/pyvenv.cfg; echo 1 > .venv/lib.py; echo 2 > .venv/.bashrc
ln -s /etc/passwd .venv/link
echo 2 > .venv/.git/config; echo 2 > .venv/.git/hooks/post-checkout; echo 2 > sub/node_modules/.husky/pre-push
echo 2 > build/.envrc
echo '*' > lib/.gitignore; echo 2 > lib/app.py; echo 2 > lib/new.py; echo 2 > web/kept/a
mkdir -p later; echo /later/ >> .git/info/exclude; echo 2 > later/new.py
echo 2 > .pytest_cache/conftest.py; echo 2 > .pytest_cache/new.py
echo tag > .mypy_cache/CACHEDIR.TAG; echo 2 > .mypy_cache/app.py
echo 2 > .ruff_cache/run; chmod +x .ruff_cache/run; echo 2 > .ruff_cache/.envrc
mkdir -p lib/__pycache__; echo 2 > __pycache__/tracked.pyc; echo 2 > lib/__pycache__/run.pyc; chmod +x lib/__pycache__/run.pyc
ln -s /etc/passwd lib/__pycache__/link.pyc; echo 2 > lib/__pycache__/new.py
echo 2 > build/dep/lib.c
echo 2 > .git/hooks/pre-commit; mkdir .git/hooks/a.sample; echo 2 > .git/hooks/a.sample/pre-commit
echo 2 > .git/objects/evil.sh; git config core.pager evil; echo 2 > .git/info/attributes
mkdir -p .git/objects/aa; echo 2 > .git/objects/aa/00000000000000000000000000000000000000; chmod +x .git/objects/aa/0000*
git rev-parse HEAD > .git/refs/heads/run; chmod +x .git/refs/heads/run
d="$(printf 'x\033[2J\a')"; mkdir -p "$d/.venv"; echo home > "$d/.venv/pyvenv.cfg"; echo 1 > "$d/.venv/lib.py"
`
