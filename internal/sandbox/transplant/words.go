package transplant

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// An abbreviation of an id in a message has so many digits at least, as git's default has it.
var hexWord = regexp.MustCompile(`[0-9a-fA-F]{7,}`)

// ownWords finds the ids of the sandbox's commits in messages.
type ownWords struct {
	reals map[string]string
	ids   []string // of all commits, in order
}

func (t *Taken) newWords() *ownWords {
	return &ownWords{t.reals, slices.Sorted(maps.Keys(t.reals))}
}

// add makes the id of another commit known.
func (w *ownWords) add(id string) {
	at, known := slices.BinarySearch(w.ids, id)
	if !known {
		w.ids = slices.Insert(w.ids, at, id)
	}
}

// replace returns a message in which ids of commits of the clean history, and of those that were
// transplanted to made, are the real ones, abbreviated alike. Other words stay.
func (w *ownWords) replace(message string, made map[string]string) string {
	return hexWord.ReplaceAllStringFunc(message, func(word string) string {
		prefix := strings.ToLower(word)
		at, _ := slices.BinarySearch(w.ids, prefix)
		if at == len(w.ids) || !strings.HasPrefix(w.ids[at], prefix) || at+1 < len(w.ids) && strings.HasPrefix(w.ids[at+1], prefix) {
			return word
		}
		real := made[w.ids[at]]
		if real == "" {
			real = w.reals[w.ids[at]]
		}
		if len(real) < len(word) {
			return word
		}
		return real[:len(word)]
	})
}

// plainText replaces control characters, by which a text could act on a terminal when git shows it:
// all but tabs and line ends, in UTF-8 also those beyond ASCII.
func plainText(text, encoding string) string {
	b := []byte(text)
	for i, c := range b {
		switch {
		case c < ' ' && c != '\t' && c != '\n' && c != '\r', c == 0x7f:
			b[i] = '?'
		case encoding == "" && c == 0xc2 && i+1 < len(b) && 0x80 <= b[i+1] && b[i+1] < 0xa0:
			b[i], b[i+1] = '?', '?'
		}
	}
	return string(b)
}
