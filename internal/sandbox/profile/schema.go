package profile

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of profiles, for editors. Parse is stricter: a
// schema cannot tell a malformed pattern or host.
func Schema() []byte { return slices.Clone(schema) }
