// Package secretname has the names under which secrets are kept. It is a table, with the
// programs that keep secrets so; it does not decide what happens with them.
package secretname

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Name is a name under which secrets are kept, which the presets hide.
type Name struct {
	Pattern string // of a rule of type glob
	Kind    string // "private-key"
	Origin  string // what says that a secret is kept there, for people
}

//go:embed secrets.txt
var secretsText string

// secrets is the table, with !(…) replaced by what a glob can say.
var secrets = sync.OnceValue(func() []Name { list, _ := readSecrets(); return list })

// writtenSecrets are the patterns with !(…) as the table has them, by what took
// their place.
var writtenSecrets = sync.OnceValue(func() map[string]string { _, written := readSecrets(); return written })

func readSecrets() (list []Name, written map[string]string) {
	written = map[string]string{}
	for line := range strings.Lines(secretsText) {
		fields := strings.Fields(line)
		if len(fields) < 3 || strings.HasPrefix(line, "#") {
			continue
		}
		pattern := expandExcept(fields[0])
		list = append(list, Name{pattern, fields[1], strings.Join(fields[2:], " ")})
		if pattern != fields[0] {
			written[pattern] = fields[0]
		}
	}
	return list, written
}

// Written returns a pattern for people: one that the table of secrets says
// shorter as it says it, with !(…).
func Written(pattern string) string {
	if !strings.Contains(pattern, "{") {
		return pattern // the table makes braces of !(…)
	}
	if short, ok := writtenSecrets()[pattern]; ok {
		return short
	}
	return pattern
}

// All returns the names of secrets that the presets hide.
func All() []Name { return slices.Clone(secrets()) }

// expandExcept replaces each !(a|*b) of a pattern of the table by braces that
// match any text but exactly "a" and what ends in "b".
func expandExcept(pattern string) string {
	before, rest, found := strings.Cut(pattern, "!(")
	if !found {
		return pattern
	}
	words, after, _ := strings.Cut(rest, ")")
	root := &ending{}
	for word := range strings.SplitSeq(words, "|") {
		root.add(word)
	}
	return before + "{" + strings.Join(root.others("", nil), ",") + "}" + expandExcept(after)
}

// ending is a node of a trie of words, read from their last character on.
type ending struct {
	before map[byte]*ending // the words that go on, by the character before
	exact  bool             // a word begins here, and nothing is before it
	any    bool             // a word begins here, whatever is before it
}

func (n *ending) add(word string) {
	text := strings.TrimPrefix(word, "*")
	for i := len(text) - 1; i >= 0; i-- {
		if n.before == nil {
			n.before = map[byte]*ending{}
		}
		next := n.before[text[i]]
		if next == nil {
			next = &ending{}
			n.before[text[i]] = next
		}
		n = next
	}
	n.any = n.any || text != word
	n.exact = n.exact || text == word
}

// others appends patterns for the texts that end in suffix and are none of the
// words; suffix is what led to n.
func (n *ending) others(suffix string, out []string) []string {
	if n.any {
		return out
	}
	more := "*?"
	if len(n.before) > 0 {
		more = "*[!" + string(slices.Sorted(maps.Keys(n.before))) + "]"
	}
	if !n.exact {
		more = "{," + more + "}"
	}
	out = append(out, more+suffix)
	for _, c := range slices.Sorted(maps.Keys(n.before)) {
		out = n.before[c].others(string(c)+suffix, out)
	}
	return out
}
