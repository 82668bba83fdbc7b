package policyfile

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema (draft 2020-12) of the policy file, for
// editors. Load is stricter: a schema cannot tell a malformed pattern.
func Schema() []byte { return slices.Clone(schema) }
