// Package docs_test runs the examples of the documents, word by word: of every
// Markdown file of the repository (blocks_test.go).
//
// A fenced block marked "console" is a session: a line that begins with "$ "
// is typed into a shell, "> " continues it, and the lines below are what the
// terminal must show, stdout and stderr together. In them "…" stands for any
// text, and alone on a line for any lines. One marked "sh" is typed into the
// same shell, and its commands must succeed. One whose language is followed by
// a name is saved under that name, and a command below must use it. The blocks
// of one document are one session, begun in an empty directory.
//
// What docs/rest.md types into curl and docs/api.md sends is played against a
// server (server_test.go). Python's blocks without a name are run by the Python
// package's tests, and policies and configurations are loaded (data_test.go). A
// block that is no example is marked "text".
package docs_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/testenv"
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
	for _, document := range documents(t) {
		steps := session(blocksOf(t, document))
		if len(steps) == 0 {
			continue
		}
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			for _, program := range []string{"curl", "git", "jq", "make", "ssh-keygen"} {
				if slices.ContainsFunc(steps, func(s step) bool { return strings.Contains(s.command, program+" ") }) {
					testenv.Command(t, program)
				}
			}
			if slices.ContainsFunc(steps, func(s step) bool { return strings.Contains(s.command, " --scratch ") }) {
				testenv.Overlay(t)
			}
			w := newWorld(t, document)
			w.supply(steps)
			for i, got := range w.play(steps) {
				if want := steps[i].output; !matches(want, got) {
					t.Errorf("%s:%d: $ %s\ngot:\n%s\nwant:\n%s", document, steps[i].line, steps[i].command, got, want)
				}
			}
		})
	}
}

// session returns the steps that the blocks of a document are.
func session(blocks []block) []step {
	var steps []step
	for _, b := range blocks {
		switch {
		case b.file != "":
			const end = "--end of file--"
			steps = append(steps, step{b.line, fmt.Sprintf("mkdir -p '%s' && cat > '%s' <<'%s'\n%s%[3]s", filepath.Dir(b.file), b.file, end, b.text), ""})
		case b.language == "console":
			steps = append(steps, typed(b)...)
		case b.language == "sh" && b.document != requests:
			steps = append(steps, step{b.line, "set -e\n" + b.text + "set +e", "…\n"})
		}
	}
	return steps
}

// typed returns the steps of a console block.
func typed(b block) []step {
	var steps []step
	for i, line := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: b.line + 1 + i, command: line[2:]})
		case last < 0:
			steps = append(steps, step{b.line + 1 + i, ":", line + " (stands before the first command)\n"})
		case strings.HasPrefix(line, "> ") && steps[last].output == "":
			steps[last].command += "\n" + line[2:]
		default:
			steps[last].output += line + "\n"
		}
	}
	return steps
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
	blocks, err := parse("d", "```console\n$ cat <<E\n> x\n> E\nx\n$ true\n```\n```sh\nls\n```\n```go a/b.go\n//\n```\n```text\n$ no\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []step{
		{2, "cat <<E\nx\nE", "x\n"},
		{6, "true", ""},
		{8, "set -e\nls\nset +e", "…\n"},
		{11, "mkdir -p 'a' && cat > 'a/b.go' <<'--end of file--'\n//\n--end of file--", ""},
	}
	if diff := cmp.Diff(want, session(blocks), cmp.AllowUnexported(step{})); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
}
