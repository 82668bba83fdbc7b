package mountspec

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// Workspace is the name of the workspace among the mounts. No mount has it.
const Workspace = "workspace"

// maxName is the longest name of a mount, in bytes.
const maxName = 64

// CheckName refuses a name that a mount cannot have. Errors: Invalid.
func CheckName(name string) error {
	switch {
	case name == Workspace:
		return errdefs.New(errdefs.Invalid, "name %q is the workspace's", name)
	case name == "" || len(name) > maxName || strings.Trim(name, ".") == "" || strings.ContainsFunc(name, isOdd):
		return errdefs.New(errdefs.Invalid, "name %q: want 1 to %d characters of a-z, 0-9, \".\", \"_\" and \"-\"", name, maxName)
	}
	return nil
}

// isOdd reports whether a name may not contain r.
func isOdd(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}

// Names gives every mount a name: its own, else the last element of its target, in the
// characters that names have, and with a number if the name is taken. It changes specs.
// Errors: Invalid if two mounts were given one name.
func Names(specs []Spec) error {
	var taken []string
	for _, s := range specs {
		if s.Name == "" {
			continue
		}
		if slices.Contains(taken, s.Name) {
			return errdefs.New(errdefs.Invalid, "two mounts have the name %q", s.Name)
		}
		taken = append(taken, s.Name)
	}
	for i := range specs {
		if specs[i].Name == "" {
			specs[i].Name = unusedName(path.Base(specs[i].Target), taken)
			taken = append(taken, specs[i].Name)
		}
	}
	return nil
}

// unusedName makes a name of an element of a path.
func unusedName(element string, taken []string) string {
	const room = 8 // for a number
	name := strings.Map(func(r rune) rune {
		if isOdd(r) {
			return '-'
		}
		return r
	}, strings.ToLower(element))
	name = name[:min(len(name), maxName-room)]
	if CheckName(name) != nil {
		name = "mount"
	}
	unique := name
	for n := 2; slices.Contains(taken, unique); n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	return unique
}
