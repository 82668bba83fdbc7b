package jsonkeys

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// MaxBytes bounds a document.
const MaxBytes = 8 << 20

// Merged is the result of Merge.
type Merged struct {
	Text []byte // the document, with the values that were taken
	// Taken are the keys with another value than before. Conflicts are those that were left,
	// because both sides changed them, or because an object is something else on one side.
	Taken, Conflicts []string
	// Rest says that ours differs from Text in other keys, too.
	Rest bool
}

// Merge returns document with the values that ours has for keys, where ours differs from base,
// the version that both began with. It takes no value that document has changed since. Errors:
// Invalid for a version that is too long, is no JSON object, or has a name twice; and for a
// malformed key.
func Merge(document, base, ours []byte, keys []string) (Merged, error) {
	versions := []struct {
		of   string
		text []byte
		v    value
	}{{of: "the source's file", text: document}, {of: "the file that the sandbox began with", text: base}, {of: "the sandbox's file", text: ours}}
	var before, after []byte
	for i := range versions {
		one := &versions[i]
		if len(one.text) > MaxBytes {
			return Merged{}, errdefs.New(errdefs.Invalid, "%s: it is larger than %d MiB", one.of, MaxBytes>>20)
		}
		b, v, a, err := parse(one.text)
		if err != nil {
			return Merged{}, errdefs.New(errdefs.Invalid, "%s: %w", one.of, err)
		}
		if one.v = v; i == 0 {
			before, after = b, a
		}
	}
	m := merger{change: &change{}}
	for _, text := range keys {
		key, err := ParseKey(text)
		if err == nil {
			err = m.walk(key, nil, versions[0].v, versions[1].v, versions[2].v)
		}
		if err != nil {
			return Merged{}, err
		}
	}
	text := document
	if len(m.taken) > 0 {
		l := layoutOf(versions[0].v)
		merged, err := l.rewrite(versions[0].v, m.change, nil)
		if err != nil {
			return Merged{}, err
		}
		text = slices.Concat(before, merged, after)
	}
	if len(text) > MaxBytes {
		return Merged{}, errdefs.New(errdefs.Invalid, "the result is larger than %d MiB", MaxBytes>>20)
	}
	equal, err := same(value(bytes.Trim(text, space)), versions[2].v)
	return Merged{Text: text, Taken: m.taken, Conflicts: m.conflicts, Rest: !equal}, err
}

// change is what becomes of a value.
type change struct {
	set     value // the new value
	remove  bool
	members map[string]*change
	order   []string // of members
}

// at returns the change of the member at path, nil if its value is already decided.
func (c *change) at(path []string) *change {
	for _, n := range path {
		if c.set != nil || c.remove {
			return nil
		}
		if c.members == nil {
			c.members = map[string]*change{}
		}
		if c.members[n] == nil {
			c.members[n] = &change{}
			c.order = append(c.order, n)
		}
		c = c.members[n]
	}
	if c.set != nil || c.remove {
		return nil
	}
	return c
}

// maxValues bounds how many values differ: a result names each.
const maxValues = 10_000

// merger collects the changes that keys name.
type merger struct {
	change           *change
	taken, conflicts []string
}

// pollutes is a name that programs in JavaScript take for the prototype of an object.
const pollutes = "__proto__"

// walk decides about the values that key names below path. theirs, base and ours are the values
// at path.
func (m *merger) walk(key Key, path []string, theirs, base, ours value) error {
	if len(m.taken)+len(m.conflicts) > maxValues {
		return errdefs.New(errdefs.Invalid, "more than %d values of its keys differ", maxValues)
	}
	if len(key) == 0 {
		return m.decide(path, theirs, base, ours)
	}
	if ours != nil && !ours.isObject() || theirs != nil && !theirs.isObject() {
		if is, err := same(ours, base); !is || err != nil {
			m.conflict(path)
			return err
		}
		return nil
	}
	values := make([]map[string]value, 3)
	for i, v := range []value{theirs, base, ours} {
		var err error
		if values[i], err = v.byName(); err != nil {
			return err
		}
	}
	names := []string{key[0].text}
	if key[0].any {
		var err error
		if names, err = namesOf(ours, base); err != nil {
			return err
		}
	}
	for _, n := range names {
		if err := m.walk(key[1:], append(slices.Clip(path), n), values[0][n], values[1][n], values[2][n]); err != nil {
			return err
		}
	}
	return nil
}

// namesOf returns the names of the members of both, in their order.
func namesOf(a, b value) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, v := range []value{a, b} {
		list, err := v.members()
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if !seen[m.name] {
				seen[m.name] = true
				names = append(names, m.name)
			}
		}
	}
	return names, nil
}

// decide takes our value if it is another one than base, and theirs is not.
func (m *merger) decide(path []string, theirs, base, ours value) error {
	if unchanged, err := same(base, ours); unchanged || err != nil {
		return err
	}
	if is, err := same(theirs, ours); is || err != nil {
		return err
	}
	kept, err := same(theirs, base)
	if err != nil {
		return err
	}
	if !kept || slices.Contains(path, pollutes) {
		m.conflict(path)
		return nil
	}
	if c := m.change.at(path); c != nil {
		*c = change{set: ours, remove: ours == nil}
		m.taken = append(m.taken, written(path))
	}
	return nil
}

func (m *merger) conflict(path []string) {
	if text := written(path); !slices.Contains(m.conflicts, text) {
		m.conflicts = append(m.conflicts, text)
	}
}

// layout is how a document is indented.
type layout struct {
	lines bool // each member is on a line
	unit  string
	colon string
}

// layoutOf returns the layout of a document, by its first member.
func layoutOf(v value) layout {
	list, err := v.members()
	if err != nil || len(list) == 0 {
		return layout{lines: true, unit: "  ", colon: ": "}
	}
	l := layout{colon: string(list[0].colon)}
	if i := bytes.LastIndexByte(list[0].lead, '\n'); i >= 0 {
		l.lines, l.unit = true, string(list[0].lead[i+1:])
	}
	return l
}

// rewrite returns v with the change, at path.
func (l layout) rewrite(v value, c *change, path []string) ([]byte, error) {
	switch {
	case c.members == nil:
		return l.format(c.set, len(path))
	case !v.isObject(): // absent: it is made
		v = value("{}")
	}
	list, err := v.members()
	if err != nil {
		return nil, err
	}
	parts, tail, err := l.rewriteMembers(list, c, path)
	if err != nil {
		return nil, err
	}
	lead, colon := l.lead(len(path)+1), l.colon
	if len(list) > 0 {
		lead, colon = string(list[0].lead), string(list[0].colon)
	} else if l.lines {
		tail = []byte(l.lead(len(path)))
	}
	known := map[string]bool{}
	for _, m := range list {
		known[m.name] = true
	}
	for _, n := range c.order {
		one := c.members[n]
		if known[n] || one.remove {
			continue
		}
		text, err := l.rewrite(nil, one, append(slices.Clip(path), n))
		if err != nil {
			return nil, err
		}
		parts = append(parts, slices.Concat([]byte(lead), []byte(quoteString(n)), []byte(colon), text))
	}
	if len(parts) == 0 {
		return []byte("{}"), nil
	}
	return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), tail, []byte("}")), nil
}

// rewriteMembers returns the members that stay, and the white space before the end.
func (l layout) rewriteMembers(list []member, c *change, path []string) (parts [][]byte, tail []byte, err error) {
	for i, m := range list {
		text := []byte(m.value)
		if one := c.members[m.name]; one != nil {
			if one.remove {
				if i == len(list)-1 {
					tail = m.tail
				}
				continue
			}
			if text, err = l.rewrite(m.value, one, append(slices.Clip(path), m.name)); err != nil {
				return nil, nil, err
			}
		}
		part := slices.Concat(m.lead, m.key, m.colon, text)
		if i == len(list)-1 {
			tail = m.tail
		} else {
			part = append(part, m.tail...)
		}
		parts = append(parts, part)
	}
	return parts, tail, nil
}

// lead is the white space before a member at this depth.
func (l layout) lead(depth int) string {
	if !l.lines {
		return ""
	}
	return "\n" + string(bytes.Repeat([]byte(l.unit), depth))
}

// format writes a value as the document is written.
func (l layout) format(v value, depth int) ([]byte, error) {
	var out bytes.Buffer
	var err error
	if l.lines {
		err = json.Indent(&out, v, string(bytes.Repeat([]byte(l.unit), depth)), l.unit)
	} else {
		err = json.Compact(&out, v)
	}
	return out.Bytes(), err
}
