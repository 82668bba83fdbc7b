package yamlfile

import (
	"bytes"
	"regexp"
	"sort"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// special matches a value that may be meant as a pattern, but is not text in YAML. Like the others
// it is compiled only for a malformed file.
var special = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[ \t]*(- )*[ \t]*([a-z]+:)?[ \t]+[*&!{\\[@%`|>]") })

// syntaxError returns the error of malformed text with its line. It finds the line as the shortest
// prefix with the same error, because the parser omits the number of the first line and is off by
// one elsewhere.
func (f File) syntaxError(text []byte, err error) error {
	cause := syntaxCause(err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	line := 1 + sort.Search(len(lines)-1, func(i int) bool {
		return syntaxCause(parseAll(bytes.Join(lines[:i+1], nil))) == cause
	})
	return f.At(line, "not YAML: %s", explain(cause, lines[line-1]))
}

// tabbed finds a tab where YAML wants spaces.
var tabbed = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^ *(- *)*\t") })

// explain describes the error of a line; cause is the parser's message.
func explain(cause string, line []byte) string {
	if tabbed().Match(line) {
		return "the line is indented with a tab: YAML takes spaces only"
	}
	text := "the line does not fit the lines above it"
	for _, e := range explanations {
		if strings.Contains(cause, e.cause) {
			text = e.text
			break
		}
	}
	if special().Match(line) {
		text += "; quote a value that begins with one of * & ! { [ @ % ` | >"
	}
	return text
}

// explanations are the parser's messages and their meaning in a policy or a configuration. The
// first match counts.
var explanations = []struct{ cause, text string }{
	{"mapping values are not allowed", `this colon begins a value where none can be: check the indentation and that the key of the line above ends in a colon, and quote a text with ": " in it`},
	{"expected ',' or '}'", "a { is not closed, or a comma is missing"},
	{"expected ',' or ']'", "a [ is not closed, or a comma is missing"},
	{"expected '-' indicator", "the indentation does not fit the list above: the dashes of its items are in one column"},
	{"expected key", "the indentation does not fit the lines above: keys of a mapping begin in one column"},
	{"unexpected end of stream", "a quotation mark is not closed"},
	{"unexpected document indicator", "a quotation mark is not closed"},
	{"escape", `after this backslash YAML knows no such character: write \\ in double quotes, or use single quotes`},
	{"unknown anchor", "* refers to another value, and there is none of this name"},
	{"alphabetic or numeric character", "after * or & a name is missing"},
	{"cannot start any token", "no value can begin with this character without quotation marks"},
	{"expected node content", "a value is missing, or a bracket has no partner"},
	{"could not find expected ':'", "a colon after a key is missing"},
	{"directive", "a line that begins with % is for YAML itself"},
	{"control characters", "control characters are not allowed"},
	{"UTF-8", "the file is not UTF-8 text"},
	{"exceeded max depth", "lists and mappings are nested too deeply"},
	{"tab character", "there is a tab in the indentation: YAML takes spaces only"},
}

// parseAll returns the first error of any document in text.
func parseAll(text []byte) error {
	var n yaml.Node
	return yaml.Unmarshal(text, &n)
}

var linePrefix = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^line \d+: `) })

func syntaxCause(err error) string {
	if err == nil {
		return ""
	}
	return linePrefix().ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "")
}
