// Package upgrade_test uses state that an earlier release has written.
package upgrade_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(m, &binary, harness.Build)
}

// state is a state directory of 0.3.0 with two sandboxes of a directory in which
// kept.txt held "one\n". In "old" a command has made d/added.txt (executable) and
// link, and appended "more\n" to kept.txt; "other" is read-only and hides *.md.
const state = "testdata/0.3.0.tar"

// unpack returns a state directory of 0.3.0, of a source made anew.
func unpack(t *testing.T) (home, source string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xf", state, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	home, source = filepath.Join(dir, "home"), filepath.Join(dir, "project")
	if err := os.Mkdir(source, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kept.txt": "one\n", "notes.md": "hidden\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, sandbox := range []string{"old", "other"} {
		move(t, filepath.Join(home, "sandboxes", sandbox, "sandbox.json"), source)
	}
	return home, source
}

// move writes another source's path into a record.
func move(t *testing.T, record, source string) {
	t.Helper()
	text, err := os.ReadFile(record)
	if err == nil {
		moved := strings.Replace(string(text), `"path": "/srv/project"`, `"path": "`+source+`"`, 1)
		err = os.WriteFile(record, []byte(moved), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// agentfense runs a verb, which is to end with code, and returns what it prints.
func agentfense(t *testing.T, home string, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	cmd.Env = append(os.Environ(), "AGENTFENSE_HOME="+home)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("agentfense %q: exit code %d, want %d (%v)\n%s%s", args, got, code, err, out, &stderr)
	}
	return string(out) + stderr.String()
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}

func TestChangesOfAnEarlierReleaseAreReviewedAndApplied(t *testing.T) {
	home, source := unpack(t)
	wants(t, agentfense(t, home, 0, "ls"), "old", "other", "stopped")
	wants(t, agentfense(t, home, 0, "audit", "old", "--verify"), "whole")
	wants(t, agentfense(t, home, 0, "diff", "old"), "+more", "d/added.txt", "link")
	// The directory has another inode than the one that 0.3.0 knew.
	wants(t, agentfense(t, home, 1, "apply", "old"), "--rebase")
	agentfense(t, home, 0, "apply", "old", "--rebase")
	for name, want := range map[string]string{"kept.txt": "one\nmore\n", "d/added.txt": "new\n", "link": "one\nmore\n"} {
		if text, err := os.ReadFile(filepath.Join(source, name)); err != nil || string(text) != want {
			t.Errorf("%s holds %q, %v, want %q", name, text, err, want)
		}
	}
	wants(t, agentfense(t, home, 0, "audit", "old", "--verify"), "whole")
	agentfense(t, home, 0, "rm", "old")
}

func TestASandboxOfAnEarlierReleaseRunsUnderItsRules(t *testing.T) {
	testenv.Bwrap(t)
	testenv.FUSE(t)
	home, source := unpack(t)
	wants(t, agentfense(t, home, 0, "policy", "explain", "--sandbox", "other", "/notes.md"), "none")
	out := agentfense(t, home, 0, "run", "--rebase", "--name", "other", "--dir", source, "--", "sh", "-c", "ls; ! echo x > kept.txt")
	who := strconv.Itoa(os.Geteuid()) // as 0.3.0 had it, and no other number
	wants(t, "\n"+agentfense(t, home, 0, "exec", "other", "--", "sh", "-c", "id -u; stat -c %u ."), "\n"+who+"\n"+who+"\n")
	wants(t, out, "kept.txt")
	if strings.Contains(strings.SplitN(out, "agentfense:", 2)[0], "notes.md") {
		t.Errorf("a file that 0.3.0 hides is listed:\n%s", out)
	}
	wants(t, agentfense(t, home, 0, "diff", "old", "--name-status"), "M\tkept.txt")
	agentfense(t, home, 0, "rm", "other")
}
