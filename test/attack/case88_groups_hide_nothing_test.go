package attack_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/needs"
	"github.com/agentfense/agentfense/test/harness"
)

// What a command inside names like an installed package, like what git ignores, or
// like git's own record is shown all the same, if git tracks it or the host runs it.
func TestGroupsHideNothing(t *testing.T) {
	needs.Command(t, "git")
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, map[string]string{
			"a.txt": "a\n", "src/main.py": "1\n", ".gitignore": "build/\nnode_modules\n", "package-lock.json": "{}\n",
			"node_modules/patched.js": "1\n", "env/app.py": "1\n", "venv/app.py": "1\n", "build/out": "1\n",
		}, who...)
		gitIn(t, s.Source, "init", "-q", "-b", "main")
		gitIn(t, s.Source, "add", ".")
		gitIn(t, s.Source, "add", "-f", "node_modules")
		gitIn(t, s.Source, "commit", "-q", "-m", "first")
		ownAll(t, s)
		r := s.Run(hideInGroups, "--preset", "full-access")
		wantCode(t, r, 0)
		patch, stat := agentfense(t, s, "diff", s.Name), agentfense(t, s, "diff", s.Name, "--stat")
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
		}
		for what, text := range map[string]string{"diff": patch, "diff --stat": stat, "the summary": r.Stderr} {
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
echo 2 > .git/hooks/pre-commit; mkdir .git/hooks/a.sample; echo 2 > .git/hooks/a.sample/pre-commit
echo 2 > .git/objects/evil.sh; git config core.pager evil; echo 2 > .git/info/attributes
mkdir -p .git/objects/aa; echo 2 > .git/objects/aa/00000000000000000000000000000000000000; chmod +x .git/objects/aa/0000*
git rev-parse HEAD > .git/refs/heads/run; chmod +x .git/refs/heads/run
d="$(printf 'x\033[2J\a')"; mkdir -p "$d/.venv"; echo home > "$d/.venv/pyvenv.cfg"; echo 1 > "$d/.venv/lib.py"
`
