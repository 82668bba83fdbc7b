package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// block is a fenced text of a document.
type block struct {
	document string // its path, from the repository's root
	line     int    // of the opening fence
	language string
	file     string // the name that the text is saved under in the session, if any
	heading  string // above it, of the third level
	text     string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.document, b.line) }

// documents are the paths of the repository's Markdown files, from its root.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "dist", "testdata"}, name)) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			found = append(found, strings.TrimPrefix(path, root+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// blocksOf returns the blocks of a document.
func blocksOf(t *testing.T, document string) []block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	found, err := parse(document, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	infoString = regexp.MustCompile("^```([a-z]+)(?: ([A-Za-z0-9._/-]+))?$")
	anyFence   = regexp.MustCompile("^\\s*(?:[-*+>]\\s+|[0-9]+\\.\\s+)?(?:```|~~~)")
	listItem   = regexp.MustCompile(`^([-*+]|[0-9]+\.) `)
)

// parse finds the blocks of a text. It knows one form of them, so that none is
// overlooked: an error for code in any other.
func parse(document, text string) ([]block, error) {
	var all []block
	heading, inside, inList, before := "", false, false, ""
	for i, line := range strings.Split(text, "\n") {
		switch info := infoString.FindStringSubmatch(line); {
		case inside && line == "```":
			inside = false
		case inside:
			all[len(all)-1].text += line + "\n"
		case info != nil:
			inside = true
			all = append(all, block{document: document, line: i + 1, language: info[1], file: info[2], heading: heading})
		case anyFence.MatchString(line):
			return nil, fmt.Errorf("%s:%d: a block begins with three backticks at the line's beginning and its language, and with its file's name if it has one: %q", document, i+1, line)
		case strings.HasPrefix(line, "    ") && before == "" && !inList:
			return nil, fmt.Errorf("%s:%d: an indented block is never run: fence it, and name its language", document, i+1)
		case strings.HasPrefix(line, "### "):
			heading = strings.Trim(line[len("### "):], "`")
		case line != "" && line[0] != ' ':
			inList = listItem.MatchString(line)
		}
		before = line
	}
	if inside {
		return nil, fmt.Errorf("%s: a block does not end", document)
	}
	return all, nil
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a block has a language", "### `x`\n```sh\nls\n```\n", "[{d 2 sh  x ls\n}]"},
		{"a block may have a file's name", "```go cmd/main.go\n```\n", "[{d 1 go cmd/main.go  }]"},
		{"what looks like a fence inside is text", "```text\n  ```x\n```\n", "[{d 1 text     ```x\n}]"},
		{"a list's continuation is no block", "- one\n\n    two\n", "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			blocks, err := parse("d", tt.text)
			var plain []string
			for _, b := range blocks {
				plain = append(plain, fmt.Sprint("{", b.document, " ", b.line, " ", b.language, " ", b.file, " ", b.heading, " ", b.text, "}"))
			}
			if got := fmt.Sprint(plain); err != nil || got != tt.want {
				t.Errorf("parse = %q, %v, want %q", got, err, tt.want)
			}
		})
	}
	for _, text := range []string{"```\nx\n```\n", "~~~sh\nx\n~~~\n", "````sh\n````\n", "- ```sh\n", "  ```sh\n", "``` sh\n", "```sh\n", "a\n\n    code\n"} {
		if blocks, err := parse("d", text); err == nil {
			t.Errorf("parse(%q) = %v, want an error", text, blocks)
		}
	}
}

// played says of each language what becomes of a block of it. One of a language
// that is not here fails.
var played = map[string]func(t *testing.T, b block){
	"console": nil,       // TestExamples
	"sh":      shellRuns, // TestExamples, TestEveryRequestOfREST
	"ipython": cellRuns,  // sdk/python/tests/integrations/test_jupyter.py
	"python":  nil,       // TestExamples those with a file's name, sdk/python/tests/test_docs.py the others
	"go":      goRuns,    // TestExamples those with a file's name, client's examples those of docs/go.md
	"yaml":    checkYAML,
	"json":    checkJSON,
	"mermaid": nil,       // TestArchitectureIsDrawnAsItIs compares it with the imports
	"text":    noExample, // but TestEveryCallOfTheReference plays docs/api.md
}

const reference = "has what docstrings have"

// untyped are the documents that may show commands which no test types, and why.
var untyped = map[string]string{
	"CONTRIBUTING.md":          "the targets of the Makefile, that of this test among them",
	"docs/benchmarks.md":       "measures for minutes",
	"docs/comparison.md":       "the commands of other programs",
	"docs/python-reference.md": reference,
}

var typedByHand = regexp.MustCompile(`(?m)^(\$ |>>> |(sudo|agentfense|make|go|curl|pip|python3?|docker|git|uv) )`)

// noExample sees to it that a block which is marked as none is none.
func noExample(t *testing.T, b block) {
	if command := typedByHand.FindString(b.text); command != "" && untyped[b.document] == "" {
		t.Errorf("%s: a text block with commands (%q): mark it console or sh, and it is run", b, command)
	}
}

// What documents have make do, it does.
func TestMakefileHasTheTargetsOfTheDocuments(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^|`|&& |\\$ )make (?:-[sC] (?:\\S+/)?(?:agentfense )?)*([a-z][a-z-]*)")
	found := 0
	for _, document := range documents(t) {
		if strings.HasPrefix(document, "changelog/") || document == "CHANGELOG.md" || untyped[document] == reference {
			continue // what was, or is somebody's
		}
		text, err := os.ReadFile(filepath.Join(root, document))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s: the Makefile has no target %s (%s)", document, m[1], m[0])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d uses of make were found in the documents: were they read?", found)
	}
}

func TestEveryBlockIsPlayed(t *testing.T) {
	for _, document := range documents(t) {
		t.Run(document, func(t *testing.T) {
			all := blocksOf(t, document)
			steps := session(all)
			for _, b := range all {
				play, known := played[b.language]
				if !known {
					t.Errorf("%s: nothing plays blocks of %q: name a language that something does, or text", b, b.language)
				} else if play != nil {
					play(t, b)
				}
				if b.file != "" && !uses(steps, b) {
					t.Errorf("%s: no command of the document's session uses %s", b, b.file)
				}
			}
		})
	}
}

// uses tells whether a step after a block names its file, or its directory's Go program.
func uses(steps []step, b block) bool {
	return slices.ContainsFunc(steps, func(s step) bool {
		return s.line > b.line && (strings.Contains(s.command, b.file) || b.language == "go" && strings.Contains(s.command, "go run ."))
	})
}
