// Package schematest tests JSON Schemas of YAML files.
package schematest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"go.yaml.in/yaml/v3"
)

// Golden compares the text of a schema, which is in file, with what the schema is to be. With
// update it writes the file.
func Golden(t testing.TB, want *jsonschema.Schema, text []byte, file string, update bool) {
	t.Helper()
	golden, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden = append(golden, '\n')
	if update {
		if err := os.WriteFile(file, golden, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(golden), string(text)); diff != "" {
		t.Errorf("%s is stale, run go test -update (-want +got):\n%s", file, diff)
	}
}

// Accepts validates YAML text against the text of a schema.
func Accepts(t testing.TB, schema []byte, text string) error {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.NewDecoder(strings.NewReader(text)).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return resolved.Validate(v)
}
