package policy

import (
	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// maxAlternatives bounds what the braces of one pattern stand for.
const maxAlternatives = 1024

// expandBraces returns the patterns that s stands for: {a,b} is the same rule
// written twice. Braces nest; an alternative may be empty; a brace in a class
// or after a backslash is an ordinary character. The syntax of everything but
// what stands inside a class is checked on the way. Errors: Invalid.
func expandBraces(s string) ([]string, error) {
	if err := checkBraces(s); err != nil {
		return nil, err
	}
	return appendAlternatives(nil, s, 0)
}

// appendAlternatives expands the first brace of s at or after from, and what
// follows it by recursion.
func appendAlternatives(out []string, s string, from int) ([]string, error) {
	open := from
	for open < len(s) && s[open] != '{' {
		open = afterUnit(s, open)
	}
	if open >= len(s) {
		if len(out) == maxAlternatives {
			return nil, errdefs.New(errdefs.Invalid, "the braces stand for more than %d patterns", maxAlternatives)
		}
		return append(out, s), nil
	}
	bounds := braceBounds(s, open)
	tail := s[bounds[len(bounds)-1]+1:]
	for i, start := range bounds[:len(bounds)-1] {
		var err error
		alternative := s[:open] + s[start+1:bounds[i+1]] + tail
		if out, err = appendAlternatives(out, alternative, open); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// braceBounds returns the indexes of the opening brace at s[open], of its
// commas and of its closing brace.
func braceBounds(s string, open int) []int {
	bounds := []int{open}
	depth := 0
	for i := open; ; i = afterUnit(s, i) {
		switch s[i] {
		case '{':
			depth++
		case ',':
			if depth == 1 {
				bounds = append(bounds, i)
			}
		case '}':
			if depth--; depth == 0 {
				return append(bounds, i)
			}
		}
	}
}

// afterUnit returns the index after what begins at s[i]: an escaped character,
// a class, or one byte. s has passed checkBraces.
func afterUnit(s string, i int) int {
	switch s[i] {
	case '\\':
		return i + 2
	case '[':
		end, err := glob.ClassEnd(s, i)
		if err == nil {
			return end
		}
	}
	return i + 1
}

// checkBraces refuses unbalanced braces, classes that do not end, a backslash
// with nothing to escape and an escaped slash.
func checkBraces(s string) error {
	depth := 0
	for i := 0; i < len(s); i = afterUnit(s, i) {
		switch s[i] {
		case '\\':
			if i+1 == len(s) || s[i+1] == '/' {
				return errdefs.New(errdefs.Invalid, `a backslash escapes nothing: write \\ for the character`)
			}
		case '[':
			if _, err := glob.ClassEnd(s, i); err != nil {
				return err
			}
		case '{':
			depth++
		case '}':
			if depth--; depth < 0 {
				return errdefs.New(errdefs.Invalid, "a brace is not open: { is missing")
			}
		}
	}
	if depth > 0 {
		return errdefs.New(errdefs.Invalid, "a brace is not closed: } is missing")
	}
	return nil
}
