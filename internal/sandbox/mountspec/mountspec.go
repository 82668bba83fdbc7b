// Package mountspec reads what --mount says: which directory of the host a sandbox sees in
// addition to its workspace, where, under which name and how.
//
// It promises that a Spec it returns is well formed, and that the places and names which
// Check accepts exclude each other. It is pure: whether the host has the directory, and
// whether a sandbox may see it, is for its callers to find out.
package mountspec

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/hostpath"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/preset"
)

// Mode says how a mount shows its source.
type Mode string

// The modes.
const (
	// ReadOnly is a view in which everything may be read. It has no sockets, FIFOs and
	// devices.
	ReadOnly Mode = "ro"
	// Bind is a read-only bind mount, without rules.
	Bind Mode = "bind"
	// CopyOnWrite lets everything be read and written, without sockets, FIFOs and devices.
	CopyOnWrite Mode = "cow"
	// PolicyFile is a view under the rules of a file. Every name of a preset is a mode, too: a
	// view under the rules of the preset. They have no sockets, FIFOs and devices either.
	PolicyFile Mode = "policy"
)

// HasRules reports whether the mode shows the source under rules.
func (m Mode) HasRules() bool { return m != ReadOnly && m != Bind && m != "" }

// Words are the modes that can be given, the default first.
func Words() []string {
	return append([]string{string(ReadOnly), string(CopyOnWrite), string(Bind)}, preset.Names()...)
}

// Spec is one mount, as it was given.
type Spec struct {
	Source string // as it was given
	Target string // absolute and clean; empty: the same as Source
	Name   string // empty: derived from Target, see Names
	Mode   Mode
	Policy string // the file of PolicyFile
}

// writeAll are the rules of CopyOnWrite.
var writeAll = []policy.Rule{{Pattern: "/**", Type: policy.Glob, Permission: policy.Write, Source: "--mount"}}

// Rules returns the rules of the mode. load reads a policy file. Where no rule lets anything be
// written, nothing can be made in place of what is hidden either: such a mount has no delta.
// Errors: those of load, and Invalid.
func (s Spec) Rules(load func(file string) ([]policy.Rule, error)) ([]policy.Rule, error) {
	var rules []policy.Rule
	var err error
	switch {
	case !s.Mode.HasRules():
		return nil, nil
	case s.Mode == CopyOnWrite:
		rules = writeAll
	case s.Mode == PolicyFile:
		rules, err = load(s.Policy)
	default:
		rules, err = preset.Rules(string(s.Mode))
	}
	rules = slices.Clone(rules)
	if !Writable(rules) {
		for i := range rules {
			rules[i].Own = false
		}
	}
	return rules, err
}

// Writable reports whether one of the rules lets something be written.
func Writable(rules []policy.Rule) bool {
	return slices.ContainsFunc(rules, func(r policy.Rule) bool { return r.Permission == policy.Write })
}

// option is the beginning of one option of the long form.
var option = regexp.MustCompile(`,([a-z]+)=`)

// The options of the long form.
const (
	optTarget = "dst"
	optName   = "name"
	optMode   = "mode"
	optPolicy = "policy"
)

var options = []string{optTarget, optName, optMode, optPolicy}

// Parse reads SRC[:DST][:MODE], or SRC,dst=DST,name=NAME,mode=MODE,policy=FILE with any of
// the options: there only a comma with a word and "=" after it ends a path. Errors: Invalid.
func Parse(text string) (Spec, error) {
	if strings.Contains(text, "\x00") {
		return Spec{}, errdefs.New(errdefs.Invalid, "a NUL byte is part of no path")
	}
	if option.MatchString(text) {
		return parseLong(text)
	}
	return parseShort(text)
}

// IsPlain reports whether Parse takes the text for a source, and for nothing else.
func IsPlain(text string) bool {
	s, err := Parse(text)
	return err == nil && s == Spec{Source: text, Mode: ReadOnly}
}

// At returns the path of a mount's place, which is its source's unless another was given.
func (s Spec) At() string { return cmp.Or(s.Target, s.Source) }

func parseShort(text string) (Spec, error) {
	parts := strings.Split(text, ":")
	s := Spec{Source: parts[0], Mode: ReadOnly}
	rest := parts[1:]
	if len(rest) > 0 && path.IsAbs(rest[0]) {
		s.Target, rest = path.Clean(rest[0]), rest[1:]
	}
	switch {
	case s.Source == "":
		return Spec{}, errdefs.New(errdefs.Invalid, "it names no directory: want SRC[:DST][:MODE]")
	case len(rest) > 1, len(rest) == 1 && rest[0] == "":
		return Spec{}, errdefs.New(errdefs.Invalid, "want SRC[:DST][:MODE] with an absolute DST; for a path with a colon: SRC,dst=DST,mode=MODE")
	case len(rest) == 0:
		return s, nil
	}
	var err error
	s.Mode, err = ParseMode(rest[0])
	return s, err
}

func parseLong(text string) (Spec, error) {
	at := option.FindAllStringSubmatchIndex(text, -1)
	s := Spec{Source: text[:at[0][0]], Mode: ReadOnly}
	if s.Source == "" {
		return Spec{}, errdefs.New(errdefs.Invalid, "it names no directory: want SRC,dst=DST")
	}
	var given []string
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		key, value := text[m[2]:m[3]], text[m[1]:end]
		if slices.Contains(given, key) {
			return Spec{}, errdefs.New(errdefs.Invalid, "%s= is given twice", key)
		}
		given = append(given, key)
		if slices.Contains(given, optMode) && slices.Contains(given, optPolicy) {
			return Spec{}, errdefs.New(errdefs.Invalid, "mode= and policy= exclude each other")
		}
		if err := s.set(key, value); err != nil {
			return Spec{}, err
		}
	}
	return s, nil
}

// set sets one option of the long form.
func (s *Spec) set(key, value string) (err error) {
	switch key {
	case optTarget:
		if !path.IsAbs(value) {
			return errdefs.New(errdefs.Invalid, "dst=%s: want an absolute path", strconv.Quote(value))
		}
		s.Target = path.Clean(value)
	case optName:
		s.Name, err = value, CheckName(value)
	case optMode:
		s.Mode, err = ParseMode(value)
	case optPolicy:
		if value == "" {
			return errdefs.New(errdefs.Invalid, "policy= names no file")
		}
		s.Mode, s.Policy = PolicyFile, value
	default:
		return nearest.Unknown("option", key, options)
	}
	return err
}

// ParseMode reads a mode that can be given: one of Words. Errors: Invalid.
func ParseMode(word string) (Mode, error) {
	words := Words()
	switch {
	case slices.Contains(words, word):
		return Mode(word), nil
	case word == "rw":
		return "", errdefs.New(errdefs.Invalid, "mode \"rw\": no command writes to the source of a mount; with cow, changes wait for a review")
	}
	return "", errdefs.New(errdefs.Invalid, "%w; a place inside begins with /", nearest.Unknown("mode", word, words))
}

// Mount is a mount as a sandbox's record stores it. One that 0.3.0 stored has no name and no
// mode; it is a bind mount.
type Mount struct {
	Source hostpath.Path `json:"source"`
	Target hostpath.Path `json:"target"`
	Name   string        `json:"name,omitempty"`
	Mode   Mode          `json:"mode,omitempty"`
	Rules  []policy.Rule `json:"rules,omitempty"` // of a mode with rules
	// A mount with a delta also has the identity of its source, as record.Source, and its
	// earlier rules, as record.Record.
	Dev          uint64         `json:"dev,omitempty"`
	Ino          uint64         `json:"ino,omitempty"`
	Born         int64          `json:"born,omitempty"`
	EarlierRules policy.Earlier `json:"earlier_rules,omitempty"`
}

// ProfileSource begins the Source of the rules of an agent's profile.
const ProfileSource = "profile "

// IsAgentHome reports whether the rules are those that an agent's profile has for the home
// directory. Own entries there are what the agent makes for itself, such as caches.
func (m Mount) IsAgentHome() bool {
	return len(m.Rules) > 0 && strings.HasPrefix(m.Rules[0].Source, ProfileSource)
}

// IsWritable reports what HasDelta does, also of a mount of a server, for which the identity of the
// source is not known.
func (m Mount) IsWritable() bool { return Writable(m.Rules) }

// HasDelta reports whether commands may write in the mount: to a delta, not to the source.
func (m Mount) HasDelta() bool { return m.Ino != 0 }

// Check refuses a mount with a name, a mode or rules that this package does not make.
// Errors: Precondition.
func (m Mount) Check() error {
	if m.Name == "" && m.Mode == "" && !m.HasDelta() {
		return nil
	}
	err := CheckName(m.Name)
	if err == nil && m.Mode != PolicyFile {
		_, err = ParseMode(string(m.Mode))
	}
	switch {
	case err != nil:
	case (len(m.Rules) > 0) != m.Mode.HasRules():
		err = errdefs.New(errdefs.Invalid, "mode %q with %d rules", m.Mode, len(m.Rules))
	case Writable(m.Rules) != m.HasDelta(), !m.HasDelta() && (m.Dev != 0 || m.Born != 0 || len(m.EarlierRules) > 0):
		err = errdefs.New(errdefs.Invalid, "mode %q does not go with inode %d of its source", m.Mode, m.Ino)
	}
	if err != nil {
		return errdefs.New(errdefs.Precondition, "mount at %s: %w", m.Target, err)
	}
	return nil
}

// reserved are the places of the kernel and of the sandbox itself. Nothing may be mounted
// at, above or below them.
var reserved = []string{"/proc", "/sys", "/dev", "/run/agentfense"}

// HasPlaces reports whether the workspace and other mounts may be in a mount of this mode: one
// with a view, which keeps the path to them.
func (m Mode) HasPlaces() bool { return m == ReadOnly || m.HasRules() }

// Place is where a mount is.
type Place struct {
	Target string
	Mode   Mode
}

// holds reports whether other is in the view at p.
func (p Place) holds(other string) bool {
	return p.Mode.HasPlaces() && p.Target != other && safefs.IsBelow(other, p.Target)
}

// CheckPlaces refuses a set of places of which one is reserved, or is in the workspace or in a
// mount without a view, or the same as another: commands could otherwise change the path to a
// place, or reach through one view what another hides. Errors: Invalid.
func CheckPlaces(workspace string, places []Place) error {
	for i, place := range places {
		target := place.Target
		switch {
		case !path.IsAbs(target) || path.Clean(target) != target:
			return errdefs.New(errdefs.Invalid, "%s: want a clean absolute path", quoted(target))
		case slices.ContainsFunc(reserved, func(p string) bool { return overlaps(target, p) }):
			return errdefs.New(errdefs.Invalid, "%s is reserved for the sandbox, or contains a place that is; choose another place: SRC:DST", quoted(target))
		case overlaps(target, workspace) && !place.holds(workspace):
			return errdefs.New(errdefs.Invalid, "%s and the workspace %s overlap; choose another place: SRC:DST", quoted(target), quoted(workspace))
		}
		for _, other := range places[:i] {
			if overlaps(target, other.Target) && !place.holds(other.Target) && !other.holds(target) {
				return errdefs.New(errdefs.Invalid, "%s and the mount at %s overlap; mount one of them, or choose another place: SRC:DST", quoted(target), quoted(other.Target))
			}
		}
	}
	return nil
}

// PlacesIn returns which of the targets, the outermost ones, are in the view of a mount at target,
// as paths of that view.
func PlacesIn(target string, targets []string) []vpath.Path {
	var places []vpath.Path
	for _, t := range targets {
		isOuter := t != target && safefs.IsBelow(t, target) && !slices.ContainsFunc(targets, func(other string) bool {
			return other != t && other != target && safefs.IsBelow(other, target) && safefs.IsBelow(t, other)
		})
		if p, err := vpath.Parse(strings.TrimPrefix(t, target)); isOuter && err == nil && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	return places
}

func overlaps(a, b string) bool { return safefs.IsBelow(a, b) || safefs.IsBelow(b, a) }

func quoted(p string) string { return strconv.Quote(p) }

// CheckSource refuses a directory of the host that holds its kernel interfaces and sockets.
// Errors: Invalid.
func CheckSource(source string) error {
	for _, dir := range []string{"/proc", "/sys", "/dev", "/run", "/var/run"} {
		if safefs.IsBelow(source, dir) {
			return errdefs.New(errdefs.Invalid, "%s holds the host's kernel interfaces and sockets", quoted(source))
		}
	}
	if source == "/" {
		return errdefs.New(errdefs.Invalid, "\"/\" is the whole host; name the directories that are needed")
	}
	return nil
}
