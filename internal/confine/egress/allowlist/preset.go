package allowlist

import (
	"maps"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// A Preset is a list of rules that has a name.
type Preset struct {
	Rules  []string // as ParseRule reads them
	Source string   // the document that names these hosts
}

// Presets are the hosts of services, by name.
var Presets = map[string]Preset{
	"anthropic": {[]string{"api.anthropic.com"}, "https://docs.anthropic.com/en/api/overview"},
	"openai":    {[]string{"api.openai.com"}, "https://platform.openai.com/docs/api-reference"},
	"google":    {[]string{"generativelanguage.googleapis.com"}, "https://ai.google.dev/api"},
	"npm":       {[]string{"registry.npmjs.org"}, "https://docs.npmjs.com/cli/using-npm/registry"},
	"pypi":      {[]string{"pypi.org", "files.pythonhosted.org"}, "https://docs.pypi.org/api/index-api/"},
	"go":        {[]string{"proxy.golang.org", "sum.golang.org"}, "https://go.dev/ref/mod"},
	"crates":    {[]string{"index.crates.io", "static.crates.io", "crates.io"}, "https://doc.rust-lang.org/cargo/reference/registry-index.html"},
	"debian": {
		[]string{"deb.debian.org:80", "deb.debian.org", "security.debian.org:80", "security.debian.org"},
		"https://wiki.debian.org/SourcesList",
	},
	"github": {
		[]string{
			"github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
			"objects.githubusercontent.com", "release-assets.githubusercontent.com",
		},
		"https://api.github.com/meta",
	},
}

// preset returns the rules of a preset. Errors: Invalid.
func preset(name string) ([]Rule, error) {
	p, known := Presets[name]
	if !known {
		return nil, errdefs.New(errdefs.Invalid, "preset %s: want one of @%s", vpath.Quote("@"+name), strings.Join(PresetNames(), ", @"))
	}
	return Parse(p.Rules)
}

// PresetNames returns the names of the presets in order.
func PresetNames() []string { return slices.Sorted(maps.Keys(Presets)) }
