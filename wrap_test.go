package agentfense_test

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the width at which text for people wraps.
const maxColumns = 100

// generated are the documents that `make gen` writes.
var generated = []string{"docs/api.md", "docs/python-reference.md"}

func TestDocumentsAreWrapped(t *testing.T) {
	documents := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "sdk/python/README.md"}
	for _, pattern := range []string{"docs/*.md", "docs/quickstart/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %q, %v", pattern, found, err)
		}
		documents = append(documents, found...)
	}
	for _, path := range documents {
		if slices.Contains(generated, path) {
			continue
		}
		for _, line := range longLines(read(t, path)) {
			t.Errorf("%s:%d: more than %d columns: wrap the line", path, line, maxColumns)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	const most = 150
	if n := strings.Count(read(t, "README.md"), "\n"); n > most {
		t.Errorf("README.md has %d lines, more than %d: move details to the page of docs that they are about", n, most)
	}
}

// unbreakable is a line with no place to break it: a heading, a row of a table, or
// a list item or line that is one link.
var unbreakable = regexp.MustCompile(`^\s*(#|\||([-*+>]\s+|\d+\.\s+)?(!?\[[^]]*\]\([^)]*\)|<?https?://\S+)[.,:;]?$)`)

// longLines returns the numbers of the lines of a Markdown text that are too long.
func longLines(markdown string) []int {
	var long []int
	fenced := false
	for i, line := range strings.Split(markdown, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if !fenced && utf8.RuneCountInString(line) > maxColumns && !unbreakable.MatchString(line) {
			long = append(long, i+1)
		}
	}
	return long
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("word ", 21)
	for _, tt := range []struct {
		name, text string
		want       []int
	}{
		{"a short line may stay", "word\n", nil},
		{"a hundred columns may stay, however many bytes they are", strings.Repeat("ö", 100), nil},
		{"a longer line may not", "word\n" + long + "\n", []int{2}},
		{"a long item of a list may not", "- " + long, []int{1}},
		{"a line with a link among words may not", long + "[a](b)", []int{1}},
		{"a line that is a link may", "- [" + long + "](docs/cli.md)", nil},
		{"an image may", "![" + long + "](docs/session.svg)", nil},
		{"a heading may", "## " + long, nil},
		{"a row of a table may", "| " + long + " |", nil},
		{"a command may, and the text below it not", "```console\n$ " + long + "\n```\n" + long, []int{4}},
	} {
		if got := longLines(tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("%s: longLines = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestCommentsAreWrapped looks at comments that have a line to themselves, but for
// preformatted text. A tab counts as four columns.
func TestCommentsAreWrapped(t *testing.T) {
	comment := regexp.MustCompile(`^\s*// \S+ `) // one word alone cannot be wrapped
	texts := map[string]string{}
	for _, f := range goFiles(t) {
		if !f.isGenerated() {
			texts[f.path] = f.text
		}
	}
	for _, path := range files(t, ".proto") {
		texts[path] = read(t, path)
	}
	for path, text := range texts {
		for i, line := range strings.Split(text, "\n") {
			columns := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if columns > maxColumns && comment.MatchString(line) {
				t.Errorf("%s:%d: a comment of %d columns, more than %d: wrap it", path, i+1, columns, maxColumns)
			}
		}
	}
}
