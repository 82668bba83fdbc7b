// Package nearest finds the word that a person meant.
package nearest

import (
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Word returns the word of valid that word was most likely meant to be,
// upper and lower case alike: the one with the fewest single-character edits
// (insert, delete, replace, swap of neighbours), if they are at most a third of
// the longer word, rounded up; an abbreviation of three letters or more counts
// as one edit. It returns "" if none is that near.
func Word(word string, valid []string) string {
	const longest = 64 // beyond it nobody mistyped a word of ours
	if len(word) > longest {
		return ""
	}
	word = strings.ToLower(word)
	best, bestEdits := "", 0
	for _, v := range valid {
		edits := editDistance(word, v)
		if len(word) >= 3 && strings.HasPrefix(v, word) {
			edits = min(edits, 1)
		}
		if edits > (max(len(word), len(v))+2)/3 {
			continue
		}
		if best == "" || edits < bestEdits {
			best, bestEdits = v, edits
		}
	}
	return best
}

// editDistance is the optimal string alignment distance in bytes.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// Unknown is the error for a word that is none of the valid ones: it names the
// nearest, or all of them if none is near.
func Unknown(what, word string, valid []string) error {
	if near := Word(word, valid); near != "" {
		return errdefs.New(errdefs.Invalid, "unknown %s %s: did you mean %q?", what, vpath.Quote(word), near)
	}
	return errdefs.New(errdefs.Invalid, "unknown %s %s: it is one of %s",
		what, vpath.Quote(word), strings.Join(valid, ", "))
}
