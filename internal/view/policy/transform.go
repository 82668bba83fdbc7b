package policy

import (
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Format is the format of a masked file, which shows its keys but not its values.
type Format uint8

// The formats. The zero value masks nothing.
const (
	NoFormat Format = iota
	Env             // NAME=value lines
	JSON
	YAML
	TOML
)

var formatNames = []string{NoFormat: "", Env: "env", JSON: "json", YAML: "yaml", TOML: "toml"}

// Formats returns the names of the formats.
func Formats() []string { return append([]string(nil), formatNames[Env:]...) }

// String returns the format's name.
func (f Format) String() string { return nameOf(formatNames, int(f), "format") }

// ParseFormat returns the format named s. Errors: Invalid, with the nearest valid name.
func ParseFormat(s string) (Format, error) {
	for f := Env; int(f) < len(formatNames); f++ {
		if formatNames[f] == s {
			return f, nil
		}
	}
	return NoFormat, nearest.Unknown("format", s, formatNames[Env:])
}

// MarshalText returns the format's name. Errors: Invalid for a value that is none of the
// constants.
func (f Format) MarshalText() ([]byte, error) { return marshalName(formatNames, int(f), "format") }

// UnmarshalText accepts what MarshalText writes.
func (f *Format) UnmarshalText(text []byte) error {
	i, err := parseName(formatNames, string(text), "format")
	*f = Format(i)
	return err
}

// Transform says what a rule of permission read shows in place of a file's content. The zero
// value shows the content. At most one field is set.
type Transform struct {
	// Redact masks the values of a file of this form.
	Redact Format
	// Substitute is the path of the file whose content is shown: a name without a slash is
	// a file beside the one that the rule matches, any other path is from the root.
	Substitute string
}

// IsZero reports whether t shows the content as it is.
func (t Transform) IsZero() bool { return t == Transform{} }

// String returns t as a policy file has it: "redact: env".
func (t Transform) String() string {
	switch {
	case t.Redact != NoFormat:
		return "redact: " + t.Redact.String()
	case t.Substitute != "":
		return "substitute: " + vpath.Quote(t.Substitute)
	}
	return ""
}

// Target returns the path that t substitutes for the content of the file at p.
func (t Transform) Target(p vpath.Path) vpath.Path {
	if !strings.Contains(t.Substitute, "/") {
		return p.Dir().Child(t.Substitute)
	}
	target, err := vpath.Parse(t.Substitute)
	if err != nil {
		return "" // check has refused it
	}
	return target
}

// below returns t of a policy of a directory, made one of the directory dir below it. Errors:
// Invalid if dir does not contain the substitute.
func (t Transform) below(dir vpath.Path) (Transform, error) {
	if !strings.Contains(t.Substitute, "/") {
		return t, nil
	}
	target := t.Target(vpath.Root)
	if !target.Within(dir) || target == dir {
		return t, errdefs.New(errdefs.Invalid, "substitute %s: it is outside the workspace %s; name a file in the workspace", vpath.Quote(t.Substitute), dir)
	}
	t.Substitute = string(target.Rebase(dir, vpath.Root))
	return t, nil
}

// check refuses a transform that cannot be. Errors: Invalid.
func (t Transform) check() error {
	switch {
	case int(t.Redact) >= len(formatNames):
		return errdefs.New(errdefs.Invalid, "unknown format %d", t.Redact)
	case t.Redact != NoFormat && t.Substitute != "":
		return errdefs.New(errdefs.Invalid, "redact and substitute exclude each other: keep one of them")
	case t.Substitute == "":
		return nil
	}
	quoted := vpath.Quote(t.Substitute)
	p, err := vpath.Parse(t.Substitute)
	switch {
	case err != nil:
		return errdefs.New(errdefs.Invalid, "substitute %s: %w", quoted, err)
	case !utf8.ValidString(t.Substitute), p.IsOwn():
		return errdefs.New(errdefs.Invalid, "substitute %s: want a path in UTF-8", quoted)
	case p.IsRoot(), strings.HasSuffix(t.Substitute, "/"):
		return errdefs.New(errdefs.Invalid, "substitute %s: want the path of a file", quoted)
	}
	return nil
}

// strictness orders the transforms of rules that tie otherwise: a higher one wins. Between two
// of a kind the order has no meaning, but it does not depend on the order of the rules.
func (t Transform) strictness() uint64 {
	const kindShift = 62
	switch {
	case t.Redact != NoFormat:
		return 2<<kindShift | uint64(t.Redact)
	case t.Substitute != "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(t.Substitute))
		return 1<<kindShift | h.Sum64()>>2
	}
	return 0
}

// HasTransforms reports whether some rule shows another content than a file has.
func (p *Policy) HasTransforms() bool { return p.transforms }

// HidesContent reports whether p hides the file at path, or shows another content in place of
// its own.
func (p *Policy) HidesContent(path vpath.Path) bool {
	d := p.Decide(path)
	return d.Permission == None || !d.Transform.IsZero()
}

// ShowsContent reports whether p shows what the file at path has: it may be read, and no rule
// shows another content in its place.
func (p *Policy) ShowsContent(path vpath.Path) bool { return p.Decide(path).ShowsContent() }

// ShowsContent is Policy.ShowsContent for the path of the decision.
func (d Decision) ShowsContent() bool { return d.Permission >= Read && d.Transform.IsZero() }
