package transplant

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
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

// plainText returns a text in UTF-8 without control characters, by which it could act on a terminal
// when git shows it: tabs and line ends alone stay.
func plainText(text, encoding string) string {
	text = toUTF8(text, encoding)
	var b strings.Builder
	for i, r := range text {
		isLineEnd := r == '\n' || r == '\r' && strings.HasPrefix(text[i+1:], "\n")
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' && !isLineEnd {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// toUTF8 decodes the text of a commit that names an encoding. Git would decode it when it shows the
// commit, and in many encodings printable bytes then become control characters. So Latin-1 is
// decoded here, and of any other encoding than UTF-8 only ASCII stays.
func toUTF8(text, encoding string) string {
	isLatin := false
	switch strings.ToLower(encoding) {
	case "", "utf-8", "utf8":
		return text
	case "iso-8859-1", "iso8859-1", "latin-1", "latin1":
		isLatin = true
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		if c >= utf8.RuneSelf && !isLatin {
			c = '?'
		}
		b.WriteRune(rune(c))
	}
	return b.String()
}
