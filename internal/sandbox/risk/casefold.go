package risk

import (
	"strings"
	"unicode"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Spellings returns p in the spelling of the table: in lower case and, if different, as
// Windows interprets it. git refuses the same spellings of ".git" (core.protectHFS,
// core.protectNTFS in git-config(1)).
func Spellings(p vpath.Path) []vpath.Path {
	folded := fold(string(p))
	if !strings.ContainsAny(folded, `\:~. `) {
		return []vpath.Path{vpath.Path(folded)}
	}
	windows := asWindows(folded)
	if windows == folded {
		return []vpath.Path{vpath.Path(folded)}
	}
	return []vpath.Path{vpath.Path(folded), vpath.Path(windows)}
}

// fold removes differences of case, and code points that file systems ignore: HFS+ and
// casefold of ext4 find ".git" by "\u200c.git".
func fold(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		plain = plain && s[i] < 0x80
	}
	if plain {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(unicode.ToLower(r))
		case r == unicode.ReplacementChar:
			b.WriteByte(s[i]) // invalid UTF-8, byte by byte
		case !isIgnorable(r):
			b.WriteString(foldRune(r))
		}
	}
	return b.String()
}

// isIgnorable reports whether file systems ignore r in a name:
// Default_Ignorable_Code_Point, and the rest of the format characters.
func isIgnorable(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// foldRune folds a non-ASCII rune, to ASCII if Unicode defines that.
func foldRune(r rune) string {
	if s, ok := letters[r]; ok {
		return s
	}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if other < 0x80 {
			return string(unicode.ToLower(other))
		}
	}
	return string(unicode.ToLower(r))
}

// letters fold to several ASCII letters (CaseFolding.txt, status F).
var letters = map[rune]string{
	'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st",
}

// asWindows returns a path as Windows interprets it: a backslash separates elements, a
// colon begins the name of a stream, dots and spaces at the end of a name are ignored, and
// git's names have short forms.
func asWindows(p string) string {
	elements := strings.Split(strings.ReplaceAll(p[1:], `\`, "/"), "/")
	kept := elements[:0]
	for _, e := range elements {
		name, _, _ := strings.Cut(e, ":")
		if name = strings.TrimRight(name, ". "); name == "" {
			name = e
		}
		if name == "" || name == "." || name == ".." {
			continue
		}
		if long, ok := shortNames[strings.TrimRight(name, "0123456789")]; ok {
			name = long
		}
		kept = append(kept, name)
	}
	return "/" + strings.Join(kept, "/")
}

// shortNames are the short names that NTFS makes of git's names, without the number at
// their end (is_ntfs_dotgit and is_ntfs_dot_generic in git's path.c).
var shortNames = map[string]string{
	"git~": ".git", "gitmod~": ".gitmodules", "gi7eba~": ".gitmodules", "gitatt~": ".gitattributes", "gi7d29~": ".gitattributes",
	"gitcon~": ".gitconfig",
}
