package config

import (
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/lib/yamlfile"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// Load reads the configuration file path, or none if path is "". The variables of environ
// ("NAME=VALUE") take precedence. A relative path in the file is relative to the file's
// directory.
//
// Errors: NotFound, Denied or Unavailable if the file cannot be read; Invalid for an
// unknown key or an invalid value, with "FILE:LINE" or the variable, and the nearest key.
func Load(path string, environ []string) (*Config, error) {
	l := loader{config: Default(), from: map[string]origin{}}
	if path != "" {
		text, err := readFile(path)
		if err != nil {
			return nil, err
		}
		l.file = yamlfile.File(path)
		if l.dir, err = filepath.Abs(filepath.Dir(path)); err != nil {
			return nil, fileError(path, err)
		}
		if err := l.readText(text); err != nil {
			return nil, err
		}
	}
	if err := l.readEnviron(environ); err != nil {
		return nil, err
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	return l.config, nil
}

func readFile(path string) ([]byte, error) {
	text, err := safefs.ReadNamed(path, maxFileBytes)
	if err != nil {
		return nil, fileError(path, err)
	}
	return text, nil
}

func fileError(path string, err error) error {
	kind := safefs.Kind(err)
	if kind == errdefs.Internal {
		kind = errdefs.Unavailable
	}
	return errdefs.New(kind, "configuration file %s: %w", vpath.Escape(path), err)
}

// loader fills a Config and records the origin of each value.
type loader struct {
	config *Config
	file   yamlfile.File
	dir    string
	from   map[string]origin // by key; a default has none
}

// origin is where a key was given: in a variable, or else in a line of the
// file.
type origin struct {
	variable string
	line     int
}

// at is an Invalid error that says where key was given.
func (l *loader) at(key, format string, args ...any) error {
	where, given := l.from[key]
	cause := errdefs.New(errdefs.Invalid, format, args...)
	switch {
	case !given:
		return errdefs.New(errdefs.Invalid, "%s (the default): %w", key, cause)
	case where.variable != "":
		return errdefs.New(errdefs.Invalid, "%s: %w", where.variable, cause)
	}
	return l.file.At(where.line, "%s: %w", key, cause)
}

func (l *loader) readText(text []byte) error {
	n, err := l.file.Parse(text)
	if err != nil || n == nil {
		return err
	}
	return l.readSection(n, "")
}

// readSection reads a mapping; one in which every line is a comment is empty.
func (l *loader) readSection(n *yaml.Node, section string) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		what := section
		if section == "" {
			what = "a configuration"
		}
		return l.file.At(n.Line, "%s is a mapping of keys, not %s", what, yamlfile.Shape(n))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, content := n.Content[i], n.Content[i+1]
		key := strings.TrimPrefix(section+"."+name.Value, ".")
		switch {
		case name.Kind != yaml.ScalarNode || !slices.Contains(below(section), name.Value):
			return l.file.At(name.Line, "%w", unknownKey(section, name.Value))
		case seen[key]:
			return l.file.At(name.Line, "%s is given twice", key)
		}
		seen[key] = true
		if err := l.readKey(key, content); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) readKey(key string, n *yaml.Node) error {
	s, ok := find(key)
	if !ok {
		return l.readSection(n, key)
	}
	if tables[key] != nil {
		rows, err := l.readTable(n, key)
		if err != nil {
			return err
		}
		return l.assign(s, origin{line: n.Line}, value{rows: rows, isList: true, dir: l.dir})
	}
	if n.Kind == yaml.SequenceNode && slices.Contains(lists, key) {
		items, err := l.readItems(n, key)
		if err != nil {
			return err
		}
		return l.assign(s, origin{line: n.Line}, value{items: items, isList: true, dir: l.dir})
	}
	text, err := l.file.Text(n, key)
	if err != nil {
		return err
	}
	return l.assign(s, origin{line: n.Line}, value{text: text, dir: l.dir})
}

// readItems reads a list of texts.
func (l *loader) readItems(n *yaml.Node, key string) ([]string, error) {
	if n.Anchor != "" {
		return nil, l.file.At(n.Line, "%s must be a plain list without an anchor", key)
	}
	var items []string
	for _, item := range n.Content {
		text, err := l.file.Text(item, key)
		if err != nil {
			return nil, err
		}
		items = append(items, text)
	}
	return items, nil
}

// syncNames are the two names of one setting.
var syncNames = map[string]string{
	"sandbox.sync":               "sandbox.sync_on_completion",
	"sandbox.sync_on_completion": "sandbox.sync",
}

func (l *loader) assign(s setting, from origin, v value) error {
	sync := l.config.Sandbox.Sync
	l.from[s.key] = from
	if err := s.set(l.config, v); err != nil {
		return l.at(s.key, "%w", err)
	}
	other, given := l.from[syncNames[s.key]]
	if given && (other.variable == "") == (from.variable == "") && sync != l.config.Sandbox.Sync {
		return l.at(s.key, "conflicts with %s: set only one of the two", syncNames[s.key])
	}
	return nil
}

// unknownKey suggests a key: the nearest of the section, or one with that name in another
// section.
func unknownKey(section, name string) error {
	valid := below(section)
	prefix := section
	if section != "" {
		prefix += "."
	}
	near := nearest.Word(name, valid)
	if near != "" {
		near = prefix + near
	} else if i := slices.IndexFunc(settings, func(s setting) bool { return strings.HasSuffix(s.key, "."+name) }); i >= 0 {
		near = settings[i].key
	}
	if near != "" {
		return errdefs.New(errdefs.Invalid, "unknown key %s: did you mean %q?", vpath.Quote(prefix+name), near)
	}
	where := ""
	if section != "" {
		where = "in " + section + " "
	}
	return errdefs.New(errdefs.Invalid, "unknown key %s: %sit is one of %s", vpath.Quote(prefix+name), where, strings.Join(valid, ", "))
}
