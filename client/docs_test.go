//go:build linux

package client_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What docs/go.md shows are examples of the package, word for word, which are
// compiled and run.
func TestDocumentShowsExamples(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example := regexp.MustCompile(`(?s)\nfunc (Example\w*)\(\) \{\n\ttry\(func\(ctx context\.Context, dir string\) error \{\n(.*?)\n\t\}\)\n\t// Output:\n`)
	bodies := map[string]string{}
	for _, m := range example.FindAllStringSubmatch(read("example_test.go"), -1) {
		body := strings.ReplaceAll("\n"+m[2], "\n\t\t", "\n")
		bodies[body[1:]] = m[1]
	}
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n").FindAllStringSubmatch(read("../docs/go.md"), -1) {
		name, known := bodies[m[1]]
		if !known {
			t.Errorf("docs/go.md shows what is no example with an output of example_test.go:\n%s", m[1])
		}
		shown[name] = true
	}
	for _, name := range bodies {
		if !shown[name] {
			t.Errorf("docs/go.md does not show %s", name)
		}
	}
}
