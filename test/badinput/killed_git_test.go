package badinput_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

// onHost runs git in the source, with no configuration but the repository's.
func onHost(t *testing.T, s *harness.Sandbox, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
	cmd.Dir = s.Source
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

const commitInside = `export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
echo b >> a.txt; git commit -qam second && git tag v1`

// A killed apply leaves no branch without its commits, and the next one goes on.
func TestAKilledApplyKeepsTheRepositoryWhole(t *testing.T) {
	testenv.Command(t, "git")
	for _, point := range []string{"sync: intended", "sync: staged", "sync: one placed", "sync: settled"} {
		t.Run(point, func(t *testing.T) {
			s := harness.New(t, binary, map[string]string{"a.txt": "a\n"})
			onHost(t, s, "init", "-q", "-b", "main")
			onHost(t, s, "add", ".")
			onHost(t, s, "commit", "-q", "-m", "first")
			wantCode(t, s.Run(commitInside, "--preset", "full-access"), 0)
			s.KilledAt(point, "apply", s.Name)
			onHost(t, s, "fsck", "--strict")
			for ref := range strings.Lines(onHost(t, s, "for-each-ref", "--format=%(refname)")) {
				onHost(t, s, "log", strings.TrimSpace(ref))
			}
			if point == "sync: one placed" {
				placed, err := filepath.Glob(filepath.Join(s.Source, ".git/refs/tags/*"))
				if err != nil || len(placed) > 0 || s.Read("a.txt") != "a\n" {
					t.Errorf("no object is placed first: %q, %v", placed, err)
				}
			}
			wantCode(t, s.Agentfense("apply", s.Name), 0)
			onHost(t, s, "fsck", "--strict")
			if got := onHost(t, s, "log", "-1", "--format=%s", "v1"); got != "second\n" {
				t.Errorf("the tag is at %q", got)
			}
			if got := onHost(t, s, "status", "--porcelain"); got != "" {
				t.Errorf("git status says %q", got)
			}
		})
	}
}
