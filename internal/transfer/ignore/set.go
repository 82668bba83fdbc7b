package ignore

import "strings"

// parseSet reads a set of bytes from s[i:], after its "[", and returns the index after its "]". A
// slash is in no set. A set that is not closed, or has an unknown class, is nil.
func parseSet(s string, i int) (*byteSet, int) {
	set, negated := new(byteSet), false
	if i < len(s) && (s[i] == '!' || s[i] == '^') {
		negated = true
		i++
	}
	low := -1 // the beginning of a range, if "-" follows
	for first := true; i < len(s) && (first || s[i] != ']'); first = false {
		var ok bool
		if low, i, ok = parseMember(set, s, i, low); !ok {
			return nil, 0
		}
	}
	if i >= len(s) {
		return nil, 0
	}
	if negated {
		set.invert()
	}
	set.remove('/')
	return set, i + 1
}

// parseMember adds the member of the set at s[i]: a byte, the rest of a range from low, or a class.
// It returns the possible beginning of a range, -1 for none, and the next index.
func parseMember(set *byteSet, s string, i, low int) (next, end int, ok bool) {
	switch {
	case s[i] == '-' && low >= 0 && i+1 < len(s) && s[i+1] != ']':
		high, end, ok := parseByte(s, i+1)
		for b := low; ok && b <= int(high); b++ {
			set.add(byte(b))
		}
		return -1, end, ok
	case strings.HasPrefix(s[i:], "[:"):
		name, found := className(s[i+2:])
		if !found {
			set.add('[')
			return '[', i + 1, true
		}
		holds := classes[name]
		for b := 0; holds != nil && b < 0x80; b++ {
			if holds(byte(b)) {
				set.add(byte(b))
			}
		}
		return -1, i + len("[:") + len(name) + len(":]"), holds != nil
	}
	b, end, ok := parseByte(s, i)
	set.add(b)
	return int(b), end, ok
}

// parseByte reads a byte, or the one after a backslash.
func parseByte(s string, i int) (b byte, end int, ok bool) {
	if s[i] == '\\' {
		i++
	}
	if i >= len(s) {
		return 0, i, false
	}
	return s[i], i + 1, true
}

// className returns the text before ":]", which must be the first "]" of s.
func className(s string) (name string, found bool) {
	name, _, found = strings.Cut(s, "]")
	if !found {
		return "", false
	}
	return strings.CutSuffix(name, ":")
}

// classes are those of POSIX for ASCII, with git's definition of spaces.
var classes = map[string]func(byte) bool{
	"alnum":  func(b byte) bool { return isLetter(b) || isDigit(b) },
	"alpha":  isLetter,
	"blank":  func(b byte) bool { return b == ' ' || b == '\t' },
	"cntrl":  func(b byte) bool { return b < ' ' || b == 0x7f },
	"digit":  isDigit,
	"graph":  isGraphic,
	"lower":  func(b byte) bool { return 'a' <= b && b <= 'z' },
	"print":  func(b byte) bool { return isGraphic(b) || b == ' ' },
	"punct":  func(b byte) bool { return isGraphic(b) && !isLetter(b) && !isDigit(b) },
	"space":  func(b byte) bool { return strings.IndexByte(" \t\n\r", b) >= 0 },
	"upper":  func(b byte) bool { return 'A' <= b && b <= 'Z' },
	"xdigit": func(b byte) bool { return isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f' },
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isGraphic(b byte) bool { return '!' <= b && b <= '~' }
