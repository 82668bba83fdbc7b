// Package yamlfile reads YAML files strictly: one document, plain values, errors with file and
// line. The caller interprets the keys.
package yamlfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/nearest"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// File is a file's name, for errors.
type File string

// At returns an Invalid error "NAME:LINE: …". The format accepts %w.
func (f File) At(line int, format string, args ...any) error {
	return errdefs.New(errdefs.Invalid, "%s:%d: %w", vpath.Escape(string(f)), line, fmt.Errorf(format, args...))
}

// Parse returns the only value of text, nil if text is empty.
// Errors: Invalid if it is not YAML, or more than one document.
func (f File) Parse(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, more yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, f.syntaxError(text, err)
	}
	switch err := decoder.Decode(&more); {
	case err == nil:
		return nil, f.At(more.Line, "a second document begins: the file holds one")
	case !errors.Is(err, io.EOF):
		return nil, f.syntaxError(text, err)
	}
	return document.Content[0], nil
}

// Text returns the text of the scalar n, the value of key, whatever its type in YAML. Errors:
// Invalid for a list, a mapping, an absent value, and a value with a tag or an anchor.
func (f File) Text(n *yaml.Node, key string) (string, error) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", f.At(n.Line, "%s is text, not %s: quote a value that begins with * { or [", key, Shape(n))
	case n.Tag == "!!null":
		return "", f.At(n.Line, "%s has no value", key)
	case n.Anchor != "" || !slices.Contains(plainTags, n.Tag):
		return "", f.At(n.Line, "%s is plain text: quote a value that begins with ! or &", key)
	}
	return n.Value, nil
}

// Field is a key of a mapping and what reads its value.
type Field struct {
	Key  string
	Read func(*yaml.Node) error
}

// Mapping reads the fields of n, which errors call what, and tells which there are. Errors: those
// of a Field; Invalid for a value that is no mapping, for a key that is given twice and for an
// unknown one, with the nearest valid key.
func (f File) Mapping(n *yaml.Node, what string, fields []Field) (map[string]bool, error) {
	if n.Kind != yaml.MappingNode {
		return nil, f.At(n.Line, "a %s is a mapping, not %s", what, Shape(n))
	}
	keys := make([]string, len(fields))
	for i, field := range fields {
		keys[i] = field.Key
	}
	has := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.Index(keys, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || at < 0:
			return nil, f.At(key.Line, "%w", nearest.Unknown("key", key.Value, keys))
		case has[key.Value]:
			return nil, f.At(key.Line, "key %q is given twice", key.Value)
		}
		has[key.Value] = true
		if err := fields[at].Read(value); err != nil {
			return nil, err
		}
	}
	return has, nil
}

// Texts returns the texts of a list, the value of key. Errors: as Text; Invalid for another value.
func (f File) Texts(n *yaml.Node, key string) ([]string, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, f.At(n.Line, "%s is a list, not %s", key, Shape(n))
	}
	texts := make([]string, len(n.Content))
	for i, item := range n.Content {
		var err error
		if texts[i], err = f.Text(item, "an entry of "+key); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// TextField returns the field of a single value that is stored in to.
func (f File) TextField(key string, to *string) Field {
	return Field{Key: key, Read: func(n *yaml.Node) (err error) {
		*to, err = f.Text(n, key)
		return err
	}}
}

// ParseVersioned reads a document that begins with the key version. Errors: Invalid; also if the
// file is empty.
func (f File) ParseVersioned(text []byte, version int) (*yaml.Node, error) {
	n, err := f.Parse(text)
	if err == nil && n == nil {
		err = f.At(1, "the file is empty: it begins with version: %d", version)
	}
	return n, err
}

// CheckVersion refuses a value of the key version that is not the known one. Errors: Invalid.
func (f File) CheckVersion(n *yaml.Node, version int) error {
	text, err := f.Text(n, "version")
	if err == nil && text != strconv.Itoa(version) {
		err = f.At(n.Line, "version %s is not known: this agentfense reads version %d", vpath.Quote(text), version)
	}
	return err
}

var plainTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge"}

// Shape names the kind of value n, for errors.
func Shape(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	case yaml.ScalarNode, yaml.DocumentNode:
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	return "a single value"
}
