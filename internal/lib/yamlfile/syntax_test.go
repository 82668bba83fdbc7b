package yamlfile_test

import (
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

func TestMistakesAreExplained(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a tab", "a:\n\tb: 1\n", "f:2: not YAML: the line is indented with a tab"},
		{"a tab after a dash", "a:\n  -\tb: 1\n\t c: 2\n", "f:2: not YAML: the line is indented with a tab"},
		{"an open quotation mark", "a: \"b\nc: 1\n", "not YAML: a quotation mark is not closed"},
		{"an open brace", "a: {b: 1\n", "not YAML: a { is not closed"},
		{"an open bracket", "a: [b\nc: 1\n", "not YAML: a [ is not closed"},
		{"two colons", "a: b: c\n", "f:1: not YAML: this colon begins a value where none can be"},
		{"a key without a colon", "version 1\nrules:\n", "f:2: not YAML: this colon begins a value where none can be"},
		{"a short indentation", "a:\n  - b: 1\n   c: 2\n", "f:3: not YAML: the indentation does not fit"},
		{"a dash too many", "a:\n- b: 1\n  - c: 2\n", "f:3: not YAML: "},
		{"a star", "a: *.pem\n", "f:1: not YAML: after * or & a name is missing; quote a value that begins with one of *"},
		{"an alias of nothing", "a: *x\n", "* refers to another value, and there is none of this name; quote"},
		{"an at sign", "a: @x\n", "no value can begin with this character without quotation marks; quote"},
		{"a backslash", `a: "\d"`, `write \\ in double quotes, or use single quotes`},
		{"a directive", "%FOO\na: 1\n", "a line that begins with % is for YAML itself"},
		{"a control character", "a: \x01\n", "control characters are not allowed"},
		{"no UTF-8", "a: \xff\n", "the file is not UTF-8 text"},
		{"a lone bracket", "a: ]\n", "a value is missing, or a bracket has no partner"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := yamlfile.File("f").Parse([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("Parse = %v, want %q in it", err, tt.want)
			}
			for _, word := range []string{"did not find", "found ", "token", "in this context", "octet", "node content"} {
				if strings.Contains(err.Error(), word) {
					t.Errorf("%v: these are the library's words: %q", err, word)
				}
			}
		})
	}
}
