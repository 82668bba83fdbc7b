package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy/secretname"
)

// Permission is what the view shows of a path. Each one includes those below.
type Permission uint8

// The permissions, weakest first. The zero value permits nothing.
const (
	None  Permission = iota // does not exist
	View                    // listed and stat-able, not readable
	Read                    // readable, and executable by its mode
	Write                   // everything
)

var permissionNames = []string{None: "none", View: "view", Read: "read", Write: "write"}

// Permissions returns the permissions' names, weakest first.
func Permissions() []string { return slices.Clone(permissionNames) }

// String returns the permission's name.
func (p Permission) String() string { return nameOf(permissionNames, int(p), "permission") }

// ParsePermission returns the permission named s. Errors: Invalid, with the
// nearest valid name.
func ParsePermission(s string) (Permission, error) {
	i, err := parseName(permissionNames, s, "permission")
	return Permission(i), err
}

// MarshalText returns the permission's name. Errors: Invalid for a value that
// is none of the constants.
func (p Permission) MarshalText() ([]byte, error) {
	return marshalName(permissionNames, int(p), "permission")
}

// UnmarshalText is ParsePermission.
func (p *Permission) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePermission(string(text))
	return err
}

// PatternType is how a rule's pattern is read.
type PatternType uint8

// The pattern types. On the wire an unspecified type is Glob, not Auto.
const (
	Auto      PatternType = iota // not given: told from the pattern's text
	Glob                         // *, ?, […], {a,b} within an element, ** across
	Directory                    // the path and everything below it
	File                         // exactly the path
)

var typeNames = []string{Auto: "auto", Glob: "glob", Directory: "directory", File: "file"}

// PatternTypes returns the names a policy file may use as a type.
func PatternTypes() []string { return slices.Clone(typeNames[Glob:]) }

// String returns the type's name.
func (t PatternType) String() string { return nameOf(typeNames, int(t), "type") }

// ParsePatternType returns the type named s; Auto has no name there. Errors:
// Invalid, with the nearest valid name.
func ParsePatternType(s string) (PatternType, error) {
	i, err := parseName(typeNames[Glob:], s, "type")
	if err != nil {
		return Auto, err
	}
	return PatternType(i) + Glob, nil
}

// MarshalText returns the type's name, "auto" for Auto. Errors: Invalid for a
// value that is none of the constants.
func (t PatternType) MarshalText() ([]byte, error) {
	return marshalName(typeNames, int(t), "type")
}

// UnmarshalText accepts what MarshalText writes.
func (t *PatternType) UnmarshalText(text []byte) error {
	i, err := parseName(typeNames, string(text), "type")
	*t = PatternType(i)
	return err
}

// Origin is who made a rule; it decides the rule's standing.
type Origin uint8

// The origins.
const (
	OriginRule Origin = iota // a policy file, a preset or the API
	OriginFlag               // --write, --read or --view
	OriginHide               // --hide
)

var originNames = []string{OriginRule: "rule", OriginFlag: "flag", OriginHide: "hide"}

// String returns the origin's name.
func (o Origin) String() string { return nameOf(originNames, int(o), "origin") }

// MarshalText returns the origin's name. Errors: Invalid for a value that is
// none of the constants.
func (o Origin) MarshalText() ([]byte, error) { return marshalName(originNames, int(o), "origin") }

// UnmarshalText accepts what MarshalText writes.
func (o *Origin) UnmarshalText(text []byte) error {
	i, err := parseName(originNames, string(text), "origin")
	*o = Origin(i)
	return err
}

// Rule gives the paths a pattern matches a permission.
type Rule struct {
	Pattern    string // bytes; need not be valid UTF-8
	Permission Permission
	Type       PatternType
	Priority   int32  // higher wins
	Origin     Origin // OriginHide goes with None, OriginFlag with the others
	Source     string // for people: "policy.yaml:12", "preset development", "--hide"
	// Own lets a program make an entry of its own where this rule, of None, hides
	// what the source has, see Decision.Own. Without it the rule is strict.
	Own bool
	// Transform says what a rule of permission read shows in place of a file's content.
	Transform Transform
	// Keep lets what a command wrote where this rule, of Write, decides be applied when the
	// command ends. Keys, if there are any, are all that is applied of a JSON file.
	Keep bool
	Keys jsonkeys.List
}

// ruleJSON is a rule as a sandbox's record keeps it.
type ruleJSON struct {
	Pattern      string      `json:"pattern,omitempty"`
	PatternBytes []byte      `json:"pattern_bytes,omitempty"` // instead, where not UTF-8
	Permission   Permission  `json:"permission"`
	Type         PatternType `json:"type,omitempty"`
	Priority     int32       `json:"priority,omitempty"`
	Origin       Origin      `json:"origin,omitempty"`
	Source       string      `json:"source,omitempty"`
	Own          bool        `json:"own,omitempty"` // older records lack it: strict
	Redact       Format      `json:"redact,omitempty"`
	Substitute   string      `json:"substitute,omitempty"`
	Keep         bool        `json:"keep,omitempty"`
	Keys         []string    `json:"keys,omitempty"`
}

// MarshalJSON writes the rule losslessly: a pattern that is not valid UTF-8
// goes, base64, into pattern_bytes.
func (r Rule) MarshalJSON() ([]byte, error) {
	j := ruleJSON{
		Permission: r.Permission, Type: r.Type, Priority: r.Priority,
		Origin: r.Origin, Source: r.Source, Own: r.Own, Keep: r.Keep, Keys: r.Keys.List(),
		Redact: r.Transform.Redact, Substitute: r.Transform.Substitute,
	}
	if utf8.ValidString(r.Pattern) {
		j.Pattern = r.Pattern
	} else {
		j.PatternBytes = []byte(r.Pattern)
	}
	return json.Marshal(j)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *Rule) UnmarshalJSON(data []byte) error {
	var j ruleJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	if j.PatternBytes != nil {
		j.Pattern = string(j.PatternBytes)
	}
	keys, err := jsonkeys.NewList(j.Keys)
	*r = Rule{
		Pattern: j.Pattern, Permission: j.Permission, Type: j.Type,
		Priority: j.Priority, Origin: j.Origin, Source: j.Source, Own: j.Own, Keep: j.Keep, Keys: keys,
		Transform: Transform{Redact: j.Redact, Substitute: j.Substitute},
	}
	return err
}

// String returns the rule on one line, escaped: `none rule "**/.env*" (preset
// development)`.
func (r Rule) String() string {
	s := r.Permission.String() + " rule " + vpath.Quote(secretname.Written(r.Pattern))
	if !r.Transform.IsZero() {
		s += " with " + r.Transform.String()
	}
	if r.Source == "" {
		return s
	}
	return s + " (" + vpath.Escape(r.Source) + ")"
}

// Check refuses a rule of which no policy can be compiled. Errors: Invalid, without the
// rule's source.
func (r Rule) Check() error {
	if err := r.check(); err != nil {
		return err
	}
	_, err := read(r)
	return err
}

// check refuses values that are none of the constants and origins that
// contradict the permission. Errors: Invalid.
func (r Rule) check() error {
	switch {
	case int(r.Permission) >= len(permissionNames):
		return errdefs.New(errdefs.Invalid, "unknown permission %d", r.Permission)
	case int(r.Type) >= len(typeNames):
		return errdefs.New(errdefs.Invalid, "unknown type %d", r.Type)
	case int(r.Origin) >= len(originNames):
		return errdefs.New(errdefs.Invalid, "unknown origin %d", r.Origin)
	case r.Origin == OriginHide && r.Permission != None:
		return errdefs.New(errdefs.Invalid, "a hiding flag cannot permit %s", r.Permission)
	case r.Own && r.Permission != None:
		return errdefs.New(errdefs.Invalid, "own goes with permission none, not %s", r.Permission)
	case r.Origin == OriginFlag && r.Permission == None:
		return errdefs.New(errdefs.Invalid, "a widening flag cannot permit none")
	}
	return r.checkExtras()
}

// checkExtras refuses what does not go with the permission. Errors: Invalid.
func (r Rule) checkExtras() error {
	switch {
	case r.Keep && (r.Permission != Write || r.Origin != OriginRule):
		return errdefs.New(errdefs.Invalid, "apply: keep goes with permission write, not %s", r.Permission)
	case r.Keys != "" && !r.Keep:
		return errdefs.New(errdefs.Invalid, "keys go with apply: keep")
	case !r.Transform.IsZero() && r.Permission != Read:
		return errdefs.New(errdefs.Invalid, "%s goes with permission read, not %s", r.Transform, r.Permission)
	case !r.Transform.IsZero() && r.Origin != OriginRule:
		return errdefs.New(errdefs.Invalid, "a flag cannot have %s", r.Transform)
	}
	return r.Transform.check()
}

func nameOf(names []string, i int, what string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", what, i)
}

func marshalName(names []string, i int, what string) ([]byte, error) {
	if i < len(names) {
		return []byte(names[i]), nil
	}
	return nil, errdefs.New(errdefs.Invalid, "unknown %s %d", what, i)
}

func parseName(names []string, s, what string) (int, error) {
	if i := slices.Index(names, s); i >= 0 {
		return i, nil
	}
	return 0, nearest.Unknown(what, s, names)
}
