package jsonkeys_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
)

const spread = `{
    "history": ["a"],
    "big": 12345678901234567890.10,
    "mcpServers": { "x":{"command" : "run"} },
    "projects": {
        "/home/x.y": {
            "history": [],
            "trusted": false
        }
    }
}
`

func TestMergeTakesTheListedKeysAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		name               string
		source, base, ours string
		keys               []string
		want               string
		taken, conflicts   []string
		rest               bool
	}{
		{
			name: "a key that only the sandbox changed is taken, and the rest keeps every byte",
			base: spread, source: spread,
			ours:  strings.Replace(strings.Replace(spread, `["a"]`, `["a", {"n": 1.00}]`, 1), `"run"`, `"evil"`, 1),
			keys:  []string{"history"},
			want:  strings.Replace(spread, `["a"]`, "[\n        \"a\",\n        {\n            \"n\": 1.00\n        }\n    ]", 1),
			taken: []string{"history"}, rest: true,
		},
		{
			name: "a star takes the key of every member, also of one that the source lacks",
			base: spread, source: spread,
			ours:  strings.Replace(spread, `"/home/x.y": {`, `"new": {"history": [1], "trusted": true}, "/home/x.y": {`, 1),
			keys:  []string{"projects.*.history"},
			want:  strings.Replace(spread, "        }\n    }\n}", "        },\n        \"new\": {\n            \"history\": [\n                1\n            ]\n        }\n    }\n}", 1),
			taken: []string{"projects.new.history"}, rest: true,
		},
		{
			name: "a key that both changed is left",
			base: `{"a":1,"b":1}`, source: `{"a":2,"b":1}`, ours: `{"a":3,"b":2}`, keys: []string{"a", "b"},
			want: `{"a":2,"b":2}`, taken: []string{"b"}, conflicts: []string{"a"}, rest: true,
		},
		{
			name: "what both changed alike is no conflict",
			base: `{"a":1}`, source: `{"a": {"x": 1, "y": 2}}`, ours: `{"a":{"y":2,"x":1}}`, keys: []string{"a"},
			want: `{"a": {"x": 1, "y": 2}}`,
		},
		{
			name: "the source's other changes stay",
			base: `{"a":1,"b":1}`, source: `{"a":1,"b":2}`, ours: `{"a":5,"b":1}`, keys: []string{"a"},
			want: `{"a":5,"b":2}`, taken: []string{"a"}, rest: true,
		},
		{
			name: "a removed key is removed",
			base: `{"a":1, "b":1}`, source: `{"a":1, "b":1}`, ours: `{"a":1}`, keys: []string{"b"}, want: `{"a":1}`, taken: []string{"b"},
		},
		{
			name: "the last key can be removed",
			base: "{\n  \"b\": 1\n}", source: "{\n  \"b\": 1\n}", ours: `{}`, keys: []string{"b"}, want: `{}`, taken: []string{"b"},
		},
		{
			name: "a removed key that the source changed is left",
			base: `{"b":1}`, source: `{"b":2}`, ours: `{}`, keys: []string{"b"}, want: `{"b":2}`, conflicts: []string{"b"}, rest: true,
		},
		{
			name: "a key is added to an empty document",
			base: `{}`, source: `{}`, ours: `{"b":{"c":[]}}`, keys: []string{"b"}, want: "{\n  \"b\": {\n    \"c\": []\n  }\n}", taken: []string{"b"},
		},
		{
			name: "numbers count as they are written",
			base: `{"n":1}`, source: `{"n":1}`, ours: `{"n":1.0}`, keys: []string{"n"}, want: `{"n":1.0}`, taken: []string{"n"},
		},
		{
			name: "another spelling of a string is no change",
			base: `{"n":"\u0061"}`, source: `{"n":"\u0061"}`, ours: `{"n":"a"}`, keys: []string{"n"}, want: `{"n":"\u0061"}`,
		},
		{
			name: "an object that became something else is a conflict",
			base: `{"p":{"h":1}}`, source: `{"p":{"h":1}}`, ours: `{"p":[2]}`, keys: []string{"p.h"}, want: `{"p":{"h":1}}`, conflicts: []string{"p"}, rest: true,
		},
		{
			name: "an outer key includes an inner one",
			base: `{"p":{"h":1}}`, source: `{"p":{"h":1}}`, ours: `{"p":{"h":2,"i":3}}`, keys: []string{"p.h", "p", "p.h"}, want: `{"p":{"h":2,"i":3}}`, taken: []string{"p.h", "p"},
		},
		{
			name: "no prototype is written",
			base: `{"p":{}}`, source: `{"p":{}}`, ours: `{"p":{"__proto__":{"h":1}}}`, keys: []string{"p.*.h"}, want: `{"p":{}}`, conflicts: []string{"p.__proto__.h"}, rest: true,
		},
		{
			name: "a quoted name may have dots",
			base: `{"a.b":1,"a":{"b":1}}`, source: `{"a.b":1,"a":{"b":1}}`, ours: `{"a.b":2,"a":{"b":2}}`, keys: []string{`"a.b"`}, want: `{"a.b":2,"a":{"b":1}}`, taken: []string{`"a.b"`}, rest: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := jsonkeys.Merge([]byte(tt.source), []byte(tt.base), []byte(tt.ours), tt.keys)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(m.Text)); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([][]string{tt.taken, tt.conflicts}, [][]string{m.Taken, m.Conflicts}); diff != "" {
				t.Errorf("taken and conflicts (-want +got):\n%s", diff)
			}
			if m.Rest != tt.rest {
				t.Errorf("there is a rest: %t, want %t", m.Rest, tt.rest)
			}
		})
	}
}

func TestMergeRefusesWhatIsNoObject(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101)
	for _, bad := range []string{``, `{`, `[]`, `1`, `{"a":1,}`, "{\"a\":\"\xff\"}", `{"a":1,"a":2}`, `{"a":1} x`, "\ufeff{}", deep, `{"a":"` + strings.Repeat("x", jsonkeys.MaxBytes) + `"}`} {
		for i := range 3 {
			versions := [][]byte{[]byte(`{"a":1}`), []byte(`{"a":1}`), []byte(`{"a":1}`)}
			versions[i] = []byte(bad)
			if m, err := jsonkeys.Merge(versions[0], versions[1], versions[2], []string{"a"}); !errdefs.Is(err, errdefs.Invalid) {
				t.Errorf("%.20q as version %d: %+v, %v, want Invalid", bad, i, m, err)
			}
		}
	}
}

func TestCheckRefusesMalformedKeys(t *testing.T) {
	for _, good := range []string{"history", "projects.*.history", `projects."a.b \u0041".x`, "*", "a-b_c/d"} {
		if err := jsonkeys.Check([]string{good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "a.", ".a", "a..b", "a b", `a"b`, `"a`, `"a"b`, "a*", "**", "\xff", strings.Repeat("a", 513), strings.Repeat("a.", 20) + "a"} {
		if err := jsonkeys.Check([]string{bad}); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%q: %v, want Invalid", bad, err)
		}
	}
	if err := jsonkeys.Check([]string{"a", "a"}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("twice: %v, want Invalid", err)
	}
	many := make([]string, jsonkeys.MaxKeys+1)
	for i := range many {
		many[i] = fmt.Sprint("k", i)
	}
	if err := jsonkeys.Check(many); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("many: %v, want Invalid", err)
	}
}

// Whatever the versions are: the result is valid JSON, has what was taken, and a merge of it
// takes nothing more.
func FuzzMerge(f *testing.F) {
	f.Add(spread, spread, `{"history":[2]}`, "projects.*.history")
	f.Add(`{"a":1}`, `{"a":1}`, `{"a":{"b":[{"c":"\\\""}]},"b":null}`, "a")
	f.Add(`{"x":{}}`, `{ }`, `{"x":{"y":1},"z":2}`, "*.y")
	f.Fuzz(func(t *testing.T, source, base, ours, key string) {
		m, err := jsonkeys.Merge([]byte(source), []byte(base), []byte(ours), []string{key, "history"})
		if err != nil {
			return
		}
		if !json.Valid(m.Text) {
			t.Fatalf("%q is not valid", m.Text)
		}
		if len(m.Taken) == 0 && string(m.Text) != source {
			t.Fatalf("nothing was taken, and the document changed to %q", m.Text)
		}
		again, err := jsonkeys.Merge(m.Text, []byte(base), []byte(ours), []string{key, "history"})
		if err != nil || len(again.Taken) != 0 {
			t.Fatalf("a second merge takes %q, %v", again.Taken, err)
		}
	})
}

// Each value that differs is named, and looked up among the others.
func TestMergeRefusesTooManyValues(t *testing.T) {
	for name, one := range map[string]string{"taken": `"%d":{"history":1},`, "in conflict": `"%d":1,`} {
		var ours strings.Builder
		ours.WriteString(`{"projects":{`)
		for i := range 100_000 {
			fmt.Fprintf(&ours, one, i)
		}
		ours.WriteString(`"x":{}}}`)
		_, err := jsonkeys.Merge([]byte("{}"), []byte("{}"), []byte(ours.String()), []string{"projects.*.history"})
		if !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
