package yamlfile

import (
	"bytes"
	"regexp"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// special finds a value that YAML does not take for text although it may be
// meant as a pattern.
var special = regexp.MustCompile("^[ \t]*(- )*[ \t]*([a-z]+:)?[ \t]+[*&!{\\[@%`|>]")

// syntaxError says where text is not YAML. The line is found by looking for the
// shortest beginning of the text that has the same fault, because the parser's
// own line numbers are left out in the first line and one off elsewhere.
func (f File) syntaxError(text []byte, err error) error {
	cause := syntaxCause(err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		return syntaxCause(parseAll(bytes.Join(lines[:i+1], nil))) == cause
	})
	hint := ""
	if special.Match(lines[line-1]) {
		hint = "; quote a value that begins with one of * & ! { [ @ % ` | >"
	}
	return f.At(line, "not YAML: %s%s", cause, hint)
}

// parseAll returns the first error of any document in text, nil if it is YAML.
func parseAll(text []byte) error {
	var n yaml.Node
	return yaml.Unmarshal(text, &n)
}

var linePrefix = regexp.MustCompile(`^line \d+: `)

func syntaxCause(err error) string {
	if err == nil {
		return ""
	}
	return linePrefix.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
}
