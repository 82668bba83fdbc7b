package jsonkeys

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// value is a part of a valid document, without white space around it; nil if there is none.
type value []byte

// isObject reports whether v is an object.
func (v value) isObject() bool { return len(v) > 0 && v[0] == '{' }

// member is a member of an object.
type member struct {
	name  string
	lead  []byte // white space before the name
	colon []byte // from the end of the name to the value
	key   []byte // the name as it is written
	value value
	tail  []byte // white space after the value
}

// parse returns the object that a document is. Errors: Invalid.
func parse(document []byte) (before []byte, v value, after []byte, err error) {
	switch {
	case !utf8.Valid(document):
		return nil, nil, nil, errdefs.New(errdefs.Invalid, "it is not UTF-8")
	case !json.Valid(document):
		return nil, nil, nil, errdefs.New(errdefs.Invalid, "it is not valid JSON")
	case depthOf(document) > maxDepth:
		return nil, nil, nil, errdefs.New(errdefs.Invalid, "it is nested deeper than %d levels", maxDepth)
	}
	v = bytes.TrimLeft(document, space)
	before = document[:len(document)-len(v)]
	after = v[len(bytes.TrimRight(v, space)):]
	v = v[:len(v)-len(after)]
	if !v.isObject() {
		return nil, nil, nil, errdefs.New(errdefs.Invalid, "it is not a JSON object")
	}
	return before, v, after, nil
}

// maxDepth bounds how deep a document may be nested: each level is read again for each above.
const maxDepth = 100

// depthOf returns how deep a valid document is nested.
func depthOf(document []byte) int {
	depth, most := 0, 0
	for i := 0; i < len(document); i++ {
		switch document[i] {
		case '"':
			i += endOfString(document[i:]) - 1
		case '{', '[':
			depth++
			most = max(most, depth)
		case '}', ']':
			depth--
		}
	}
	return most
}

const space = " \t\r\n" // RFC 8259, section 2

// members returns the members of an object; none for any other value. Errors: Invalid for a
// name that is there twice: programs differ in which of them counts.
func (v value) members() ([]member, error) {
	if !v.isObject() {
		return nil, nil
	}
	var list []member
	seen := map[string]bool{}
	for rest := []byte(v[1:]); ; {
		lead := leading(rest)
		if rest = rest[len(lead):]; rest[0] == '}' {
			return list, nil
		}
		m := member{lead: lead, key: rest[:endOfString(rest)]}
		rest = rest[len(m.key):]
		colon := len(leading(rest)) + 1
		colon += len(leading(rest[colon:]))
		m.colon, rest = rest[:colon], rest[colon:]
		m.value = value(rest[:endOfValue(rest)])
		rest = rest[len(m.value):]
		m.tail = leading(rest)
		rest = rest[len(m.tail):]
		if err := json.Unmarshal(m.key, &m.name); err != nil {
			return nil, errdefs.New(errdefs.Invalid, "it is not valid JSON: %w", err)
		}
		if seen[m.name] {
			return nil, errdefs.New(errdefs.Invalid, "the key %s is there twice in an object", vpath.Quote(m.name))
		}
		seen[m.name] = true
		list = append(list, m)
		if rest[0] == '}' {
			return list, nil
		}
		rest = rest[1:] // the comma
	}
}

// elements returns the elements of an array.
func (v value) elements() []value {
	var list []value
	for rest := []byte(v[1:]); ; {
		rest = rest[len(leading(rest)):]
		switch rest[0] {
		case ']':
			return list
		case ',':
			rest = rest[1:]
			continue
		}
		end := endOfValue(rest)
		list, rest = append(list, value(rest[:end])), rest[end:]
	}
}

func leading(text []byte) []byte { return text[:len(text)-len(bytes.TrimLeft(text, space))] }

// endOfString returns the length of the string with which valid text begins.
func endOfString(text []byte) int {
	for i := 1; ; i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// endOfValue returns the length of the value with which valid text begins.
func endOfValue(text []byte) int {
	switch text[0] {
	case '"':
		return endOfString(text)
	case '{', '[':
	default:
		if end := bytes.IndexAny(text, ",]}"+space); end >= 0 {
			return end
		}
		return len(text)
	}
	depth := 0
	for i := 0; ; i++ {
		switch text[i] {
		case '"':
			i += endOfString(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// same reports whether two values mean the same, or are both absent. Numbers are compared as they
// are written. Errors: Invalid.
func same(a, b value) (bool, error) {
	switch {
	case a == nil || b == nil:
		return a == nil && b == nil, nil
	case bytes.Equal(a, b):
		return true, nil
	case a[0] != b[0]:
		return false, nil
	}
	switch a[0] {
	case '{':
		return sameObjects(a, b)
	case '[':
		x, y := a.elements(), b.elements()
		if len(x) != len(y) {
			return false, nil
		}
		for i := range x {
			if is, err := same(x[i], y[i]); !is || err != nil {
				return false, err
			}
		}
		return true, nil
	case '"':
		var x, y string
		if err := json.Unmarshal(a, &x); err != nil {
			return false, err
		}
		err := json.Unmarshal(b, &y)
		return x == y, err
	}
	return false, nil
}

func sameObjects(a, b value) (bool, error) {
	x, err := a.byName()
	if err != nil {
		return false, err
	}
	y, err := b.byName()
	if err != nil || len(x) != len(y) {
		return false, err
	}
	for n, v := range x {
		if is, err := same(v, y[n]); !is || err != nil {
			return false, err
		}
	}
	return true, nil
}

// byName returns the values of an object's members.
func (v value) byName() (map[string]value, error) {
	list, err := v.members()
	if err != nil {
		return nil, err
	}
	values := make(map[string]value, len(list))
	for _, m := range list {
		values[m.name] = m.value
	}
	return values, nil
}

// quoteString writes s as a JSON string, without escapes that JSON does not need.
func quoteString(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return strconv.Quote(s)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
