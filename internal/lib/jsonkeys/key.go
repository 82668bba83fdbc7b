// Package jsonkeys takes the values of listed keys from one version of a JSON document into
// another, by a decision over three versions. It promises that the document keeps every other
// byte: order, indentation, spelling of numbers and strings. It does no I/O.
package jsonkeys

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// The bounds of keys.
const (
	MaxKeys     = 64 // of a list
	maxKeyBytes = 512
	maxNames    = 16 // of a key
)

// Key names values of a document: the names of nested objects' members. A name may stand for
// every member.
type Key []name

// name is the name of a member, or any.
type name struct {
	text string
	any  bool
}

const wantKey = `want names with dots between them, such as history or projects.*.history; a name with other characters in quotes, as in projects."a.b"`

// ParseKey reads a key: names with dots between them. The name * stands for every member of an
// object. A name that has a dot, a quote, a star or a space is written as a JSON string.
// Errors: Invalid.
func ParseKey(text string) (Key, error) {
	refuse := func(why string) (Key, error) {
		return nil, errdefs.New(errdefs.Invalid, "key %s: %s: %s", vpath.Quote(text), why, wantKey)
	}
	switch {
	case len(text) > maxKeyBytes:
		return refuse("it is too long")
	case !utf8.ValidString(text):
		return refuse("it is not UTF-8")
	}
	var key Key
	for rest := text; ; {
		n, after, ok := cutName(rest)
		if !ok {
			return refuse("a name is missing or malformed")
		}
		if key = append(key, n); len(key) > maxNames {
			return refuse("it has too many names")
		}
		if after == "" {
			return key, nil
		}
		if rest, ok = strings.CutPrefix(after, "."); !ok {
			return refuse("a dot is missing between two names")
		}
	}
}

// cutName cuts the first name off a key.
func cutName(text string) (n name, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, '.')
		if end < 0 {
			end = len(text)
		}
		bare := text[:end]
		odd := func(r rune) bool { return r == '*' || r == '"' || unicode.IsSpace(r) || unicode.IsControl(r) }
		if bare == "*" {
			return name{any: true}, text[end:], true
		}
		return name{text: bare}, text[end:], bare != "" && !strings.ContainsFunc(bare, odd)
	}
	d := json.NewDecoder(strings.NewReader(text))
	token, err := d.Token()
	quoted, is := token.(string)
	if err != nil || !is {
		return name{}, "", false
	}
	return name{text: quoted}, text[d.InputOffset():], true
}

// Check refuses a list of keys of which one is malformed or is there twice. Errors: Invalid.
func Check(keys []string) error {
	if len(keys) > MaxKeys {
		return errdefs.New(errdefs.Invalid, "%d keys: at most %d are allowed", len(keys), MaxKeys)
	}
	for i, text := range keys {
		if _, err := ParseKey(text); err != nil {
			return err
		}
		if slices.Contains(keys[:i], text) {
			return errdefs.New(errdefs.Invalid, "key %s is given twice", vpath.Quote(text))
		}
	}
	return nil
}

// List is a list of keys, one a line. Unlike a slice it can be compared.
type List string

// NewList returns the list of keys. Errors: as Check.
func NewList(keys []string) (List, error) {
	if err := Check(keys); err != nil {
		return "", err
	}
	return List(strings.Join(keys, "\n")), nil
}

// List returns the keys.
func (l List) List() []string {
	if l == "" {
		return nil
	}
	return strings.Split(string(l), "\n")
}

// written is a path of members as a message has it.
func written(path []string) string {
	parts := make([]string, len(path))
	for i, n := range path {
		parts[i] = n
		if _, rest, ok := cutName(n); !ok || rest != "" || n == "*" {
			parts[i] = quoteString(n)
		}
	}
	return vpath.Escape(strings.Join(parts, "."))
}
