// Package docs_test runs the examples of the documents, word by word.
//
// A fenced block marked "console" is a session: a line that begins with "$ "
// is typed into a shell, "> " continues it, and the lines below are what the
// terminal must show, stdout and stderr together. In them "…" stands for any
// text, and alone on a line for any lines. The blocks of one document are one
// session, begun in an empty directory.
//
// What docs/rest.md types into curl and docs/api.md sends is played against a
// server (server_test.go).
package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/needs"
	"github.com/agentfense/agentfense/test/harness"
)

var binary string

func TestMain(m *testing.M) {
	harness.Main(m, &binary, harness.BuildWithServer)
}

// step is one command and what it shows.
type step struct {
	line    int
	command string
	output  string
}

func TestExamples(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Dir(binary)
	for _, path := range append(documents, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		steps := session(string(text))
		if len(steps) == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			needs.FUSE(t)
			needs.Bwrap(t)
			for i, got := range play(t, bin, steps) {
				if want := steps[i].output; !matches(want, got) {
					t.Errorf("%s:%d: $ %s\ngot:\n%s\nwant:\n%s", path, steps[i].line, steps[i].command, got, want)
				}
			}
		})
	}
}

// session returns the steps of a document's console blocks.
func session(markdown string) []step {
	var steps []step
	inside := false
	for i, line := range strings.Split(markdown, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
		case len(steps) == 0:
		case strings.HasPrefix(line, "> ") && steps[len(steps)-1].output == "":
			steps[len(steps)-1].command += "\n" + line[2:]
		default:
			steps[len(steps)-1].output += line + "\n"
		}
	}
	return steps
}

// play types the steps into one shell and returns what each showed.
func play(t *testing.T, bin string, steps []step) []string {
	t.Helper()
	const end = "--end of step--"
	var script strings.Builder
	for _, s := range steps {
		// The step's status is kept for a following `echo $?`.
		fmt.Fprintf(&script, "%s\n__status=$?; echo '%s'; (exit $__status)\n", s.command, end)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec 2>&1\n"+script.String())
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(),
		"PATH="+bin+":"+os.Getenv("PATH"), "AGENTFENSE_HOME="+t.TempDir(), "NO_COLOR=1",
		"GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.Output()
	shown := strings.Split(string(out), end+"\n")
	if err != nil && len(shown) <= len(steps) {
		t.Fatalf("%v after:\n%s", err, out)
	}
	return shown[:len(steps)]
}

// matches compares line by line; want may hold "…".
func matches(want, got string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(want) {
		if line == "…\n" {
			pattern.WriteString("(?:.*\n)*")
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	return regexp.MustCompile("^" + pattern.String() + "$").MatchString(got)
}

func TestMatches(t *testing.T) {
	tests := []struct {
		name      string
		want, got string
		matches   bool
	}{
		{"equal text matches", "a\nb\n", "a\nb\n", true},
		{"other text does not", "a\n", "b\n", false},
		{"more text than shown does not", "a\n", "a\nb\n", false},
		{"an ellipsis stands for the rest of a line", "a … c\n", "a b c\n", true},
		{"an ellipsis in a line stays in it", "a…\n", "a\nb\n", false},
		{"an ellipsis alone stands for any lines", "a\n…\nz\n", "a\nb\nc\nz\n", true},
		{"an ellipsis alone stands for no line too", "a\n…\nz\n", "a\nz\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := matches(tt.want, tt.got); got != tt.matches {
				t.Errorf("matches(%q, %q) = %v, want %v", tt.want, tt.got, got, tt.matches)
			}
		})
	}
}

func TestSession(t *testing.T) {
	got := session("text\n```sh\n$ not this\n```\n```console\n$ cat <<E\n> x\n> E\nx\n$ true\n```\n")
	want := []step{{line: 6, command: "cat <<E\nx\nE", output: "x\n"}, {line: 10, command: "true"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("session = %v, want %v", got, want)
	}
}
