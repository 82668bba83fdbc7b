package vpath_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

func TestEscapeJSON(t *testing.T) {
	tests := map[string]string{
		"{\n  \"a\": 1\t}\n": "{\n  \"a\": 1\t}\n",
		`"plain é 漢 😀"`:      `"plain é 漢 😀"`,
		"\"a\u202eb\"":       `"a\u202eb"`,
		"\"\u2066\u200b\"":   `"\u2066\u200b"`,
		"\"\x7f\u009b\"":     `"\u007f\u009b"`,
		"\"\U000e0041\"":     `"\udb40\udc41"`,
		"\"\ufffd\"":         `"\ufffd"`,
		`"\\u202e \n"`:       `"\\u202e \n"`,
	}
	for text, want := range tests {
		if got := string(vpath.EscapeJSON([]byte(text))); got != want {
			t.Errorf("EscapeJSON(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestEscapeJSONLosesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.String().Draw(rt, "text")
		text, err := json.Marshal(want)
		if err != nil {
			rt.Fatal(err)
		}
		var got string
		if err := json.Unmarshal(vpath.EscapeJSON(text), &got); err != nil || got != want {
			rt.Fatalf("read back as %q, %v, want %s", got, err, cmp.Diff(want, got))
		}
		for _, r := range string(vpath.EscapeJSON(text)) {
			if r < 0x20 || vpath.Escape(string(r)) != string(r) && r != '\\' {
				rt.Fatalf("%q is left", r)
			}
		}
	})
}
