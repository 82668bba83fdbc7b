// Package realwork_test does inside a sandbox what people do all day: git, go,
// make, sqlite, pip and npm, and checks that the outside sees none of it
// before apply.
package realwork_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(m, &binary, harness.Build)
}

// identity lets git commit inside, where no configuration of ours is.
var identity = []string{
	"--env", "GIT_AUTHOR_NAME=A", "--env", "GIT_AUTHOR_EMAIL=a@example.com",
	"--env", "GIT_COMMITTER_NAME=C", "--env", "GIT_COMMITTER_EMAIL=c@example.com",
}

// must runs a script inside with everything writable and fails the test if it
// fails.
func must(t *testing.T, s *harness.Sandbox, script string, flags ...string) harness.Result {
	t.Helper()
	r := s.Run("set -e\n"+script, append([]string{"--preset", "full-access"}, flags...)...)
	if r.Code != 0 {
		t.Fatalf("exit code %d of\n%s\nstdout:\n%s\nstderr:\n%s", r.Code, script, r.Stdout, r.Stderr)
	}
	return r
}

func outside(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@example.com", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestGit(t *testing.T) {
	testenv.Command(t, "git")
	s := harness.New(t, binary, map[string]string{"upstream/a.txt": "a\n", "upstream/b.txt": "b\n"})
	upstream := filepath.Join(s.Source, "upstream")
	outside(t, upstream, "git", "init", "-q", "-b", "main")
	outside(t, upstream, "git", "add", "-A")
	outside(t, upstream, "git", "commit", "-qm", "first")
	must(t, s, `
git clone -q upstream clone
cd clone
git checkout -q -b topic
echo topic >> a.txt && git commit -qam topic
git checkout -q main
echo main >> b.txt && git commit -qam main
git checkout -q topic
git rebase -q main
test "$(git log --format=%s | tr '\n' ' ')" = 'topic main first '
git stash list
git gc -q
git fsck --strict
git worktree add -q ../tree main
git status --porcelain
`, identity...)
	// The repository it was cloned from is one that git still finds whole, and
	// what the clone is can be applied.
	if got := outside(t, upstream, "git", "status", "--porcelain"); got != "" {
		t.Errorf("git status of the source: %q", got)
	}
	if r := s.Agentfense("apply", s.Name); r.Code != 0 {
		t.Fatalf("apply: %s", r.Stderr)
	}
	clone := filepath.Join(s.Source, "clone")
	outside(t, clone, "git", "fsck", "--strict")
	if got := outside(t, clone, "git", "log", "--format=%s"); got != "topic\nmain\nfirst\n" {
		t.Errorf("log of the applied clone = %q", got)
	}
}

func TestGitStatusReadsNothingAgain(t *testing.T) {
	testenv.Command(t, "git")
	s := harness.New(t, binary, map[string]string{"a.txt": "a\n"})
	outside(t, s.Source, "git", "init", "-q")
	outside(t, s.Source, "git", "add", "-A")
	// With the index's stat data equal inside, git has nothing to refresh.
	must(t, s, `test -z "$(git diff-files)"`)
}

func TestGo(t *testing.T) {
	testenv.Command(t, "go")
	s := harness.New(t, binary, map[string]string{
		"go.mod":       "module example.com/hello\n\ngo 1.21\n",
		"main.go":      "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(hello()) }\n",
		"hello.go":     "package main\n\nfunc hello() string { return \"hello\" }\n",
		"main_test.go": "package main\n\nimport \"testing\"\n\nfunc TestHello(t *testing.T) { if hello() != \"hello\" { t.Fatal() } }\n",
	})
	r := must(t, s, `
export GOCACHE=$PWD/.cache GOFLAGS=-mod=mod GOTOOLCHAIN=local GOPROXY=off CGO_ENABLED=0
go build -o hello .
./hello
go test ./...
`)
	if !strings.HasPrefix(r.Stdout, "hello\nok") {
		t.Errorf("stdout = %q", r.Stdout)
	}
}

func TestMake(t *testing.T) {
	testenv.Command(t, "make", "gcc")
	s := harness.New(t, binary, map[string]string{
		"Makefile": "prog: main.o util.o\n\tcc -o $@ $^\n%.o: %.c\n\tcc -c -o $@ $<\n",
		"main.c":   "int util(void); int main(void) { return util(); }\n",
		"util.c":   "int util(void) { return 0; }\n",
	})
	r := must(t, s, "make -j4\n./prog\nmake\ntouch util.c\nmake -q && exit 1\nmake")
	if !strings.Contains(r.Stdout, "up to date") {
		t.Errorf("a second make built again:\n%s", r.Stdout)
	}
}

func TestSQLiteWithWAL(t *testing.T) {
	testenv.Command(t, "sqlite3")
	s := harness.New(t, binary, nil)
	r := must(t, s, `
sqlite3 db 'pragma journal_mode=wal; create table t(a); insert into t values(1);'
for i in 1 2 3 4; do
	sqlite3 -cmd '.timeout 20000' db 'insert into t select a+1 from t;' &
done
wait
sqlite3 db 'select count(*) from t; pragma integrity_check;'
`)
	if want := "wal\n16\nok\n"; r.Stdout != want {
		t.Errorf("stdout = %q, want %q", r.Stdout, want)
	}
}

func TestTar(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"tree/a/b/c": "c", "tree/x": "x"})
	must(t, s, `
chmod 0750 tree/a; ln -s b tree/a/link; ln tree/x tree/y
tar cf t.tar tree
mkdir out; tar xf t.tar -C out
diff -r tree out/tree
test "$(stat -c %a out/tree/a)" = 750
test "$(stat -c %h out/tree/x)" = 2
`)
}
