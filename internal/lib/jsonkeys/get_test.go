package jsonkeys

import (
	"encoding/json"
	"testing"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

func TestGetReturnsTheValueOfAKey(t *testing.T) {
	document := []byte(`{"a": {"b.c": "x", "n": null, "l": [1, 2]}, "d": 1e3}`)
	for key, want := range map[string]string{
		`a."b.c"`: `"x"`, "a.l": "[1, 2]", "d": "1e3", "a": `{"b.c": "x", "n": null, "l": [1, 2]}`,
		"a.n": "", "b": "", "d.e": "", "a.l.0": "",
	} {
		if got, err := Get(document, key); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", key, got, err, want)
		}
	}
	for text, key := range map[string]string{`{"a": 1, "a": 2}`: "a", `{"a": 1`: "a", "[1]": "a", `{"a": 1} `: "*", `{}`: "a."} {
		if got, err := Get([]byte(text), key); !errdefs.Is(err, errdefs.Invalid) {
			t.Errorf("%s: %s: got %s, %v; want Invalid", text, key, got, err)
		}
	}
}

func TestSetChangesNothingElse(t *testing.T) {
	document := "\n{\n  \"z\": 1.0,\n  \"a\": {\"t\": \"old\", \"é\": \"\\u00e9\"}\n}\n"
	got, err := Set([]byte(document), Setting{"a.t", json.RawMessage(`"new"`)}, Setting{"a.n", json.RawMessage("5")}, Setting{"b.c", json.RawMessage(`"x"`)})
	want := "\n{\n  \"z\": 1.0,\n  \"a\": {\"t\": \"new\", \"é\": \"\\u00e9\",\"n\": 5},\n  \"b\": {\n    \"c\": \"x\"\n  }\n}\n"
	if err != nil || string(got) != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := Set([]byte(document)); err != nil || string(got) != document {
		t.Errorf("without values: %q, %v", got, err)
	}
	if _, err := Set([]byte(document), Setting{"*", json.RawMessage("1")}); !errdefs.Is(err, errdefs.Invalid) {
		t.Errorf("a star: %v, want Invalid", err)
	}
}
