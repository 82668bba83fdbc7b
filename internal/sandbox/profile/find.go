package profile

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/mountspec"
)

//go:embed builtin/*.yaml
var builtin embed.FS

// BuiltIn are the names of the profiles that agentfense has, sorted.
func BuiltIn() []string {
	files, _ := fs.Glob(builtin, "builtin/*.yaml") // the only error is of a pattern
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return names
}

// builtInOrigin is the Origin of a profile of BuiltIn.
const builtInOrigin = "built in"

// Dir is the directory of the user's profiles: NAME.yaml in it is the profile NAME. It need not
// exist. It is "" if the user has no home directory.
func Dir(getenv func(string) string) string {
	config := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(config) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		config = filepath.Join(home, ".config")
	}
	return filepath.Join(config, "agentfense", "profiles")
}

// Names are the names of all profiles, sorted: those of the directory dir, and BuiltIn.
func Names(dir string) []string {
	names := BuiltIn()
	if dir != "" {
		files, _ := os.ReadDir(dir) // without the directory there are none
		for _, f := range files {
			name, is := strings.CutSuffix(f.Name(), ".yaml")
			if is && CheckName(name) == nil && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Load returns the profile that has the name: that of the directory dir, else the one that is built
// in. A profile of the directory may extend the built-in one of its own name. Errors: NotFound,
// with the nearest name; Invalid.
func Load(dir, name string) (*Profile, error) {
	return load(dir, name, nil)
}

// load is Load of a profile that others, above, extend.
func load(dir, name string, above []string) (*Profile, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if dir != "" && !slices.Contains(above, name) {
		path := filepath.Join(dir, name+".yaml")
		text, err := safefs.ReadNamed(path, MaxBytes)
		if err == nil {
			return Parse(name, path, text, func(base string) (*Profile, error) { return load(dir, base, append(above, name)) })
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, errdefs.New(errdefs.Invalid, "profile %s: %w", vpath.Escape(path), err)
		}
	}
	text, err := builtin.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		return nil, errdefs.New(errdefs.NotFound, "%w", nearest.Unknown("profile", name, Names(dir)))
	}
	p, err := Parse(name, mountspec.ProfileSource+name, text, func(base string) (*Profile, error) { return load("", base, nil) })
	if p != nil {
		p.Origin = builtInOrigin
	}
	return p, err
}

// IsBuiltIn reports whether no file of the user has the profile.
func (p *Profile) IsBuiltIn() bool { return p.Origin == builtInOrigin }
