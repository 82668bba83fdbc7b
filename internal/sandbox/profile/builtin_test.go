package profile

import (
	"slices"
	"testing"
)

// TestBuiltIn loads every profile that is built in. Those that could not be tried say so.
func TestBuiltIn(t *testing.T) {
	untried := []string{"cursor-agent", "goose"}
	for _, name := range BuiltIn() {
		p, err := Load("", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Title == "" || p.Install == "" || p.Preset == "" || len(p.Home) == 0 {
			t.Errorf("%s: title %q, install %q, preset %q, %d rules for the home directory", name, p.Title, p.Install, p.Preset, len(p.Home))
		}
		if (p.Tested == "") != slices.Contains(untried, name) {
			t.Errorf("%s was tried with version %q", name, p.Tested)
		}
	}
}
