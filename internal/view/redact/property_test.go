package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// document makes random documents of which it knows the values.
type document struct {
	t      *rapid.T
	made   int
	values []string // none of them occurs in a key
}

// text returns a value that occurs nowhere else, with characters that formats treat specially.
func (d *document) text() string {
	d.made++
	odd := rapid.StringOf(rapid.SampledFrom([]rune(" \t\"'\\#:=,[]{}&*!|>%@`$é\n-"))).Draw(d.t, "odd")
	unique := fmt.Sprintf("VALUE%dx%d", d.made, rand.Uint32())
	d.values = append(d.values, unique)
	return odd + unique + odd
}

func (d *document) number() int64 {
	n := 1_000_000 + rapid.Int64Range(0, 1<<40).Draw(d.t, "number")
	d.values = append(d.values, strconv.FormatInt(n, 10))
	return n
}

func (d *document) key() string {
	return rapid.OneOf(
		rapid.StringMatching(`[a-z][a-z_-]{0,8}`),
		rapid.SampledFrom([]string{"true", "null", "~", "12", "a b", "é", "#x", "a.b", "- x", "x: y", "<<", "\"q\"", "", "=", "2020-01-02", "*x", "&x", "!x"}),
	).Draw(d.t, "key")
}

// value returns a random value, which encoding/json, yaml and toml can write.
func (d *document) value(depth int) any {
	kinds := 5
	if depth > 3 {
		kinds = 3
	}
	switch rapid.IntRange(0, kinds-1).Draw(d.t, "kind") {
	case 0:
		return d.text()
	case 1:
		return d.number()
	case 2:
		return rapid.Bool().Draw(d.t, "bool")
	case 3:
		return d.object(depth + 1)
	}
	list := []any{}
	for range rapid.IntRange(0, 4).Draw(d.t, "length") {
		list = append(list, d.value(depth+1))
	}
	return list
}

func (d *document) object(depth int) map[string]any {
	m := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(d.t, "keys") {
		m[d.key()] = d.value(depth)
	}
	return m
}

// shape returns v without its values and without how many of them follow each other in lists.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, one := range v {
			m[k] = shape(one)
		}
		return m
	case []any:
		var list []any
		last := false
		for _, one := range v {
			_, isMap := one.(map[string]any)
			_, isList := one.([]any)
			if plain := !isMap && !isList; !plain || !last {
				list = append(list, shape(one))
				last = plain
			}
		}
		return list
	case string:
		return "string"
	case bool:
		return "bool"
	}
	return "number"
}

// TestNothingOfAValueIsLeft compares the masked forms of random documents with what the real
// parsers read in them.
func TestNothingOfAValueIsLeft(t *testing.T) {
	for name, f := range map[string]struct {
		mask  func([]byte) ([]byte, error)
		write func(any) ([]byte, error)
		read  func([]byte, any) error
	}{
		"json": {JSON, json.Marshal, json.Unmarshal},
		"yaml": {YAML, yaml.Marshal, yaml.Unmarshal},
		"toml": {TOML, toml.Marshal, toml.Unmarshal},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				d := document{t: t}
				original := d.object(0)
				content, err := f.write(original)
				if err != nil {
					t.Fatal(err)
				}
				// What the writer wrote may have another reading: compare readings.
				var before map[string]any
				if err := f.read(content, &before); err != nil {
					t.Skip(err)
				}
				masked, err := f.mask(content)
				if err != nil {
					t.Fatalf("%v\n%s", err, content)
				}
				for _, v := range d.values {
					if bytes.Contains(masked, []byte(v)) {
						t.Fatalf("the value %q is in\n%s", v, masked)
					}
				}
				var after map[string]any
				if err := f.read(masked, &after); err != nil {
					t.Fatalf("%v\n%s\nfrom\n%s", err, masked, content)
				}
				if diff := cmp.Diff(shape(before), shape(after)); diff != "" {
					t.Fatalf("other keys or types: %s\n%s\nfrom\n%s", diff, masked, content)
				}
				again, err := f.mask(masked)
				if err != nil || !bytes.Equal(masked, again) {
					t.Fatalf("masked again: %v\n%s\nfrom\n%s", err, again, masked)
				}
			})
		})
	}
}

// TestTheSizeTellsNothing masks two documents that differ in their values alone.
func TestTheSizeTellsNothing(t *testing.T) {
	for _, c := range []struct{ format, template string }{
		{"env", "A=%s\nB=\"%s\"\nexport C='%[1]s'\n"},
		{"json", `{"a":"%s","b":["%s","%[1]s"],"c":{"d":"%[2]s"}}`},
		{"yaml", "a: \"%s\"\nb: ['%s', x]\nc: |\n  %[1]s\n"},
		{"toml", "a='%s'\nb=['%s']\n"},
	} {
		rapid.Check(t, func(t *rapid.T) {
			value := rapid.StringMatching(`[a-zA-Z0-9/+=_-]{1,60}`)
			one, err := formats[c.format](fmt.Appendf(nil, c.template, value.Draw(t, "a"), value.Draw(t, "b")))
			other, err2 := formats[c.format](fmt.Appendf(nil, c.template, value.Draw(t, "c"), value.Draw(t, "d")))
			if err != nil || err2 != nil || !bytes.Equal(one, other) {
				t.Errorf("%s: %q, %v and %q, %v", c.format, one, err, other, err2)
			}
		})
	}
}

// TestAShellFindsTheSameNames sources random files, and the masked ones, in a shell.
func TestAShellFindsTheSameNames(t *testing.T) {
	var files, masked strings.Builder
	rapid.Check(t, func(t *rapid.T) {
		files.Reset()
		masked.Reset()
		var values []string
		for i := range rapid.IntRange(1, 60).Draw(t, "lines") {
			value := fmt.Sprintf("VALUE%dx%d", i, rand.Uint32())
			values = append(values, value)
			style := rapid.SampledFrom([]string{
				"%s", "'%s'", `"%s"`, "'a\nB%[2]d=%s'", "\"a\\\"\nB%[2]d=%s\"", "a\\\nB%[2]d=%s", "x'%s'y", "${x:-%s}", "\"it's %s\"", "'say \"%s\"'", "%s # don't",
			}).Draw(t, "style")
			export := rapid.SampledFrom([]string{"", "export "}).Draw(t, "export")
			text := strings.ReplaceAll(strings.ReplaceAll(style, "%[2]d", strconv.Itoa(i)), "%s", value)
			fmt.Fprintf(&files, "%sA%d=%s\n# B%d=c'\n", export, i, text, i)
		}
		out, err := Env([]byte(files.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, files.String())
		}
		masked.Write(out)
		for _, v := range values {
			if strings.Contains(masked.String(), v) {
				t.Fatalf("the value %s is in\n%s", v, masked.String())
			}
		}
		if strings.Contains(masked.String(), "B") {
			t.Fatalf("a part of a value is taken for a name in\n%s", masked.String())
		}
	})
	if before, after := namesIn(t, files.String()), namesIn(t, masked.String()); len(before) == 0 || !slices.Equal(before, after) {
		t.Errorf("the shell has %q, and of the masked file %q", before, after)
	}
}

// namesIn returns the names that a shell has after it sourced content.
func namesIn(t *testing.T, content string) []string {
	cmd := exec.Command("env", "-i", "sh", "-c", "set -a\n"+content+"\nenv")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		if name, _, ok := strings.Cut(line, "="); ok && strings.HasPrefix(name, "A") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
