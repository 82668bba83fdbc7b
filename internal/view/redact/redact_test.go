package redact

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// formats are the formats by name.
var formats = map[string]func([]byte) ([]byte, error){"env": Env, "json": JSON, "yaml": YAML, "toml": TOML}

func TestMaskedFiles(t *testing.T) {
	for _, c := range []struct{ name, format, in, want string }{
		{"names and no values", "env", "A=1\nB = two words\nC=\n", "A=***\nB=***\nC=***\n"},
		{"comments go", "env", "# a\n\n  # b\nA=1 # it's c\nB=\"x\" # \"y\n", "A=***\nB=***\n"},
		{"export stays", "env", "export A=1\nexport\tB='2'\nexporter=3\n", "export A=***\nexport B=***\nexporter=***\n"},
		{"several lines in quotes", "env", "A=\"one\nB=two\n\"\nC='x\nD=y'\n", "A=***\nC=***\n"},
		{"a quote in quotes", "env", "A=\"x\\\"\nB=y\"\nC='it\"s'\nD=`a'\"b`\n", "A=***\nC=***\nD=***\n"},
		{"a backslash at the end goes on", "env", "A=one\\\nB=two\nC=3\n", "A=***\nC=***\n"},
		{"line ends of Windows", "env", "\xef\xbb\xbfA=1\r\nB=\"2\"\r\n\r\n# c\r\nC=3", "A=***\nB=***\nC=***\n"},
		{"values need not be UTF-8", "env", "A=\xff\xfe\n", "A=***\n"},
		{"names of several kinds", "env", "_a.b-c9=1\na=$(x)\nb=${c}\n", "_a.b-c9=***\na=***\nb=***\n"},
		{"a text in quotes behind another", "env", "A='x'\"y\"z\nB=1\n", "A=***\nB=***\n"},
		{"variables in values", "env", "A=\"x ${B:-${C}}\"\nD=${E}{\n", "A=***\nD=***\n"},
		{"nothing", "env", "", ""},

		{
			"types stay", "json", `{"s":"x","n":1.5e3,"t":true,"z":null,"o":{},"l":[]}`,
			"{\n  \"s\": \"***\",\n  \"n\": 0,\n  \"t\": false,\n  \"z\": null,\n  \"o\": {},\n  \"l\": []\n}\n",
		},
		{"lists of values are one long", "json", `[1,2,3]`, "[\n  0\n]\n"},
		{"lists of objects keep them", "json", `[{"a":1},{"b":2},3,4,[5]]`, "[\n  {\n    \"a\": 0\n  },\n  {\n    \"b\": 0\n  },\n  0,\n  [\n    0\n  ]\n]\n"},
		{"keys stay as they are", "json", `{"a<b>\u00e9\"":1,"x":1,"x":2}`, "{\n  \"a<b>é\\\"\": 0,\n  \"x\": 0,\n  \"x\": 0\n}\n"},
		{"a value alone", "json", `"secret"`, "\"***\"\n"},

		{
			"types stay", "yaml", "s: x\nn: 12\nf: 1.5\nt: yes\nb: true\nz: ~\nd: 2020-01-02\no: {}\nl: []\n",
			"s: \"***\"\nn: 0\nf: 0.0\nt: \"***\"\nb: false\nz: null\nd: 1970-01-01\no: {}\nl: []\n",
		},
		{"comments go", "yaml", "# a\na: 1 # b\n# c\nb:\n  # d\n  - x # e\n", "a: 0\nb:\n  - \"***\"\n"},
		{"texts of several lines", "yaml", "a: |\n  one\n  two: 2\nb: >-\n  x\n", "a: \"***\"\nb: \"***\"\n"},
		{"tags go", "yaml", "a: !vault secret\nb: !!binary c2VjcmV0\nc: !x {d: 1}\n", "a: \"***\"\nb: \"***\"\nc:\n  d: 0\n"},
		{"lists of values are one long", "yaml", "a: [1, x, y]\nb:\n- {c: 1}\n- {c: 2}\n", "a:\n  - 0\nb:\n  - c: 0\n  - c: 0\n"},
		{"anchors get other names", "yaml", "base: &secret1\n  a: x\nuse:\n  <<: *secret1\n  b: 1\n", "base: &a1\n  a: \"***\"\nuse:\n  <<: *a1\n  b: 0\n"},
		{"documents", "yaml", "a: 1\n---\nb: 2\n", "a: 0\n---\nb: 0\n"},
		{"keys of other types", "yaml", "1: a\ntrue: b\n\"2\": c\n", "1: \"***\"\ntrue: \"***\"\n\"2\": \"***\"\n"},

		{"types stay", "toml", "s='x'\ni=12\nf=1.5\nb=true\nd=2020-01-02\nt=10:11:12\nl=2020-01-02T10:11:12\no=2020-01-02T10:11:12Z\n", "b = false\nd = 1970-01-01\nf = 0.0\ni = 0\nl = 1970-01-01T00:00:00\no = 1970-01-01T00:00:00Z\ns = '***'\nt = 00:00:00\n"},
		{"tables", "toml", "# c\n[b.c]\nx='y' # d\n[[l]]\na=1\n[[l]]\na=2\n", "[b]\n[b.c]\nx = '***'\n\n[[l]]\na = 0\n\n[[l]]\na = 0\n"},
		{"lists of values are one long", "toml", "a=[1,2,3]\n", "a = [0]\n"},
	} {
		t.Run(c.format+": "+c.name, func(t *testing.T) {
			got, err := formats[c.format]([]byte(c.in))
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
}

func TestWhatHasNoCertainReadingIsRefused(t *testing.T) {
	for _, c := range []struct{ name, format, in string }{
		{"a line without =", "env", "A=1\nsecret\n"},
		{"a command", "env", "source other\n"},
		{"no name", "env", "=x\n"},
		{"a name of other characters", "env", "A B=x\n"},
		{"a NUL", "env", "A=x\x00\n"},
		{"a quote that is not closed", "env", "A=\"x\n"},
		{"a quote in a value, open at the end of the line", "env", "A=it's\nB=x'\n"},
		{"a backslash before the closing quote", "env", "A='x\\'\nB='y\n'\n"},
		{"two backslashes before the closing quote", "env", "A=\"x\\\\\"\n"},
		{"a command in quotes", "env", "A=\"$(echo \"x\")\"\n"},
		{"a here document", "env", "A=$(cat <<EOF\nB=1\nEOF\n)\n"},
		{"a list of bash", "env", "A=(x\nB=y\n)\n"},
		{"a variable with a default of several lines", "env", "A=${B:-one\ntwo=}\n"},
		{"a variable with quotes of its own in quotes", "env", "A=\"${B:-\"\ntwo=\"}\"\n"},
		{"a brace before the variable", "env", "A=}${B:-one\ntwo=}\n"},
		{"a quote behind # without a space", "env", "A=#it's\nB=x'\n"},
		{"a quote in the next line", "env", "A=b\\\n#it's\nB='\n"},

		{"a comment", "json", "{\"a\":1} // b"},
		{"two values", "json", "{} {}"},
		{"a comma too many", "json", "[1,]"},
		{"nothing", "json", ""},
		{"other text", "json", "A=1"},
		{"no UTF-8", "json", "\"\xff\""},
		{"too deep", "json", strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)},
		{"far too deep", "json", strings.Repeat("[", MaxBytes)},
		{"too many line breaks", "json", strings.Repeat("[", maxDepth) + "[]" + strings.Repeat(",[]", 30_000) + strings.Repeat("]", maxDepth)},

		{"a list as a key", "yaml", "? [a, b]\n: 1\n"},
		{"an anchor at a key", "yaml", "&x a: 1\n"},
		{"an alias as a key", "yaml", "a: &x secret\n*x : 1\n"},
		{"an unknown alias", "yaml", "a: *x\n"},
		{"a tag of a key", "yaml", "!x a: 1\n"},
		{"a tab", "yaml", "a:\n\t- b\n"},
		{"no UTF-8", "yaml", "a: \xff\n"},
		{"too deep", "yaml", strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)},
		{"far too deep", "yaml", strings.Repeat("[", MaxBytes)},
		{"far too deep, in blocks", "yaml", strings.Repeat("- ", MaxBytes/2)},

		{"the same key twice", "toml", "a=1\na=2\n"},
		{"no value", "toml", "a=\n"},
		{"no UTF-8", "toml", "a='\xff'\n"},
		{"too deep", "toml", "a=" + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)},
		{"far too deep", "toml", "a=" + strings.Repeat("[", MaxBytes-2)},
		{"keys far too deep", "toml", strings.Repeat("a.", MaxBytes/2-2) + "a=1"},
		{"tables far too deep", "toml", "[" + strings.Repeat("a.", MaxBytes/2-2) + "a]"},
	} {
		t.Run(c.format+": "+c.name, func(t *testing.T) {
			if got, err := formats[c.format]([]byte(c.in)); err == nil {
				t.Errorf("got %q, want an error", got)
			}
		})
	}
}

func TestAFileBeyondTheSizeIsRefused(t *testing.T) {
	for name, mask := range formats {
		if _, err := mask(bytes.Repeat([]byte("\n"), MaxBytes+1)); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v, want %v", name, err, errTooLarge)
		}
	}
}

// TestAliasesAreNotExpanded masks what would be a file of 10^9 values.
func TestAliasesAreNotExpanded(t *testing.T) {
	bomb := "a0: &a0 [x]\n"
	for i := range 9 {
		one := string(rune('0' + i))
		bomb += "b" + one + ": &b" + one + " [" + strings.Repeat("*a0, ", 9) + "*a0]\n"
	}
	got, err := YAML([]byte(bomb))
	if err != nil || len(got) > 2*len(bomb) {
		t.Errorf("%d bytes of %d, %v", len(got), len(bomb), err)
	}
}
