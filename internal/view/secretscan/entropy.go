package secretscan

import (
	"bytes"
	"math"
	"regexp"
	"sync"
)

// markers occur in the names of variables that hold secrets. Their first letter is missing,
// because its case differs.
var markers = [][]byte{
	[]byte("ecret"), []byte("ECRET"), []byte("assw"), []byte("ASSW"), []byte("oken"), []byte("OKEN"),
	[]byte("pi_key"), []byte("PI_KEY"), []byte("piKey"), []byte("pikey"), []byte("ccess_key"), []byte("CCESS_KEY"), []byte("ccessKey"),
	[]byte("rivate_key"), []byte("RIVATE_KEY"),
}

// assigned matches the text after a marker: the rest of the name, the sign, and a quoted or
// a bare value.
var assigned = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A[A-Za-z0-9_-]{0,24}["']?\s{0,8}(?::=|=>|=|:)\s{0,8}(?:"([^"\s]{16,200})"|'([^'\s]{16,200})'|([^\s"',;]{16,200})[ \t]*(?:\r?\n|\z))`)
})

// The least entropy of a secret, in bits per character. detect-secrets uses 4.5 for base64
// and 3.0 for hexadecimal digits alone. A value of a variable with a telling name needs
// less.
const (
	leastEntropy    = 3.5
	leastEntropyHex = 3.0
)

// findAssignment returns the first variable that has the name of a secret and a value that
// looks random.
func findAssignment(text []byte) (Finding, bool) {
	first := -1
	for _, m := range markers {
		for from := 0; first < 0 || from < first; {
			i := bytes.Index(text[from:], m)
			if i < 0 {
				break
			}
			i += from
			from = i + len(m)
			rest := text[from:min(len(text), from+300)]
			if !isAssigned(rest) {
				continue
			}
			groups := assigned().FindSubmatch(rest)
			if groups == nil || !isRandom(bytes.Join(groups[1:], nil)) {
				continue
			}
			if first < 0 || i < first {
				first = i
			}
		}
	}
	if first < 0 {
		return Finding{}, false
	}
	return Finding{Line: lineOf(text, first), Kind: Entropy, Reason: "a variable for a secret has a random value"}, true
}

// isAssigned reports quickly whether assigned may match.
func isAssigned(rest []byte) bool {
	i := 0
	for i < len(rest) && (isWord(rest[i]) || rest[i] == '-') {
		i++
	}
	for i < len(rest) && (rest[i] == '"' || rest[i] == '\'' || rest[i] == ' ' || rest[i] == '\t') {
		i++
	}
	return i < len(rest) && (rest[i] == ':' || rest[i] == '=')
}

// isRandom reports whether value looks like a key or a generated password, and not like
// words, a path, a reference to a variable or a digest.
func isRandom(value []byte) bool {
	letters, digits, hex := 0, 0, true
	for _, c := range value {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case isWord(c) && c != '_':
			letters++
			hex = hex && bytes.IndexByte([]byte("abcdefABCDEF"), c) >= 0
		case bytes.IndexByte([]byte("+/=_-.!@#%^*~&?"), c) >= 0:
			hex = hex && c == '-'
		default:
			return false // ( { $ < and the like: code or a reference
		}
	}
	if digits < 2 || letters < 4 || isPlaceholder(value) || isReference(value) {
		return false
	}
	least := leastEntropy
	if hex {
		least = leastEntropyHex
	}
	return entropyOf(value) >= least
}

// isReference reports whether value looks like a path, an address, the name of a
// type, or the integrity of a package.
func isReference(value []byte) bool {
	return value[0] == '/' || value[0] == '.' || bytes.Contains(value, []byte("://")) || bytes.Count(value, []byte(".")) > 1 ||
		bytes.HasPrefix(value, []byte("sha")) && bytes.Contains(value, []byte("-"))
}

// entropyOf returns the Shannon entropy, in bits per character.
func entropyOf(value []byte) float64 {
	var counts [256]int
	for _, c := range value {
		counts[c]++
	}
	sum := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(value))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}
