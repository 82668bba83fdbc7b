// Package gittest makes git repositories for tests.
package gittest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// environment has no configuration but the repository's.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
	}
}

// Git runs git in a directory and returns what it prints.
func Git(t *testing.T, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, bytes.NewReader(stdin), environment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// Script runs a shell script in a directory.
func Script(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Dir, cmd.Env = dir, environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// Repository makes a repository with a commit of the files a and h, and runs a script in it.
func Repository(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	Script(t, dir, "git init -q -b main; echo a >a; echo h1 >h; git add .; git commit -qm first\n"+script)
	return dir
}

// Names are those of random histories.
var Names = []string{"a", "b", "dir/c", "dir/h", "h", `hid"den/x y`, "läse/ß", "sub", "sub/z"}

// RandomHistory is a stream for fast-import: commits with merges that change names at random. The
// ref of the commit N is cN.
func RandomHistory(r *rand.Rand, commits int) []byte {
	var b bytes.Buffer
	for i := 1; i <= commits; i++ {
		fmt.Fprintf(&b, "commit refs/heads/c%d\nmark :%d\ncommitter a <a@b> %d +0000\n", i, i, 1_000_000+i)
		message := fmt.Sprintf("commit %d\n", i)
		fmt.Fprintf(&b, "data %d\n%s", len(message), message)
		if i > 1 {
			first := i - 1 - r.IntN(min(i-1, 3))
			fmt.Fprintf(&b, "from :%d\n", first)
			if other := 1 + r.IntN(i-1); other != first && r.IntN(3) == 0 {
				fmt.Fprintf(&b, "merge :%d\n", other)
			}
		}
		RandomChanges(&b, r)
	}
	return b.Bytes()
}

// RandomChanges writes the changes of a commit for fast-import.
func RandomChanges(b *bytes.Buffer, r *rand.Rand) {
	for range r.IntN(4) {
		quoted := `"` + strings.ReplaceAll(Names[r.IntN(len(Names))], `"`, `\"`) + `"`
		if r.IntN(4) == 0 {
			fmt.Fprintf(b, "D %s\n", quoted)
			continue
		}
		fmt.Fprintf(b, "M 100644 inline %s\ndata 2\n%d\n", quoted, r.IntN(9))
	}
	b.WriteString("\n")
}
