package mcp_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
	"github.com/agentfense/agentfense/test/harness/mcpclient"
)

// An agent commits in a clean repository and asks for an apply; the person is told of the branches
// that wait, and of those that were applied no more.
func TestCommitsOverMCP(t *testing.T) {
	testenv.Overlay(t)
	s := harness.New(t, binary, map[string]string{"a.txt": "one\n", ".env": "KEY=1\n"})
	git := func(args ...string) string {
		t.Helper()
		all := append([]string{"-C", s.Source, "-c", "user.name=A", "-c", "user.email=a@example.org"}, args...)
		out, err := exec.CommandContext(t.Context(), "git", all...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q", "-b", "main")
	git("config", "user.name", "A")
	git("config", "user.email", "a@example.org")
	git("add", "-f", ".")
	git("commit", "-qm", "first")
	c := mcpclient.Start(t, s, nil, "--preset", "development", "--git=clean", "--name", "agent")
	const identity = "git config user.name Agent; git config user.email agent@example.org; "
	c.Text("exec", args{"command": identity + "echo two >>a.txt; git commit -qam second"})
	if got := c.Text("exec", args{"command": "git log --all -p"}); strings.Contains(got, "KEY=1") {
		t.Errorf("the history shows a hidden file: %q", got)
	}
	contains(t, "request_apply", c.Text("request_apply", args{}), "Branches with commits that wait for the user: 1.", "agentfense commits agent", "agentfense apply agent --commits")
	if got := git("log", "--format=%s"); got != "first" {
		t.Errorf("asking has applied: %q", got)
	}
	if r := s.Agentfense("apply", "agent", "--commits"); r.Code != 0 {
		t.Fatalf("apply: %+v", r)
	}
	if got := git("log", "--format=%an:%s"); got != "Agent:second\nA:first" {
		t.Errorf("the branch has %q", got)
	}
	contains(t, "history", c.Text("history", nil), `"branch":"main"`)
	contains(t, "commits", s.Agentfense("commits", "agent").Stdout, "second  (applied)")
	if got := c.Text("request_apply", args{}); strings.Contains(got, "commits that wait") {
		t.Errorf("applied commits still wait: %q", got)
	}
	c.Text("exec", args{"command": "git checkout -q -b more; echo three >>a.txt; git commit -qam third"})
	contains(t, "request_apply", c.Text("request_apply", args{}), "Branches with commits that wait for the user: 1.")
	if r := s.Agentfense("apply", "agent", "--commits"); r.Code != 0 || git("log", "--format=%s", "-1") != "third" {
		t.Errorf("apply of the next commit: %+v", r)
	}
	git("fsck", "--strict")
}
