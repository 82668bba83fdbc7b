package textdiff

import (
	"slices"
	"sort"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// edit replaces the lines [oldStart, oldEnd) by [newStart, newEnd).
type edit struct{ oldStart, oldEnd, newStart, newEnd int }

// compare returns the edits from a to b, ascending and apart.
//
// The library gives up refining after a hundred differences and then replaces
// the rest wholesale. So the lines are first pinned at those that occur
// exactly once on both sides (patience diff), and the library sees only what
// lies between two pins.
func compare(a, b []string) []edit {
	var edits []edit
	oldAt, newAt := 0, 0
	for _, pin := range append(pins(a, b), pair{len(a), len(b)}) {
		edits = append(edits, compareGap(a[oldAt:pin.old], b[newAt:pin.new], oldAt, newAt)...)
		oldAt, newAt = pin.old, pin.new
	}
	return edits
}

// compareGap diffs the lines between two pins, which start at the offsets.
func compareGap(a, b []string, oldAt, newAt int) []edit {
	prefix := 0
	for prefix < min(len(a), len(b)) && a[prefix] == b[prefix] {
		prefix++
	}
	a, b = a[prefix:], b[prefix:]
	oldAt, newAt = oldAt+prefix, newAt+prefix
	switch {
	case len(a) == 0 && len(b) == 0:
		return nil
	case len(a) == 0 || len(b) == 0:
		return []edit{{oldAt, oldAt + len(a), newAt, newAt + len(b)}}
	}
	var edits []edit
	for _, d := range lcs.DiffLines(a, b) {
		edits = append(edits, edit{
			oldStart: oldAt + d.Start, oldEnd: oldAt + d.End,
			newStart: newAt + d.ReplStart, newEnd: newAt + d.ReplEnd,
		})
	}
	return edits
}

// pair is a line of each side that is the same.
type pair struct{ old, new int }

// pins returns the longest ascending run of lines that occur exactly once in
// a and exactly once in b.
func pins(a, b []string) []pair {
	type seen struct{ old, new, inOld, inNew int }
	lines := make(map[string]*seen, len(a))
	for i, text := range a {
		s := lines[text]
		if s == nil {
			s = &seen{}
			lines[text] = s
		}
		s.old = i
		s.inOld++
	}
	for i, text := range b {
		if s := lines[text]; s != nil {
			s.new = i
			s.inNew++
		}
	}
	var unique []pair
	for i, text := range a {
		if s := lines[text]; s.inOld == 1 && s.inNew == 1 {
			unique = append(unique, pair{i, s.new})
		}
	}
	return ascending(unique)
}

// ascending returns the longest subsequence whose new lines ascend too
// (patience sorting: piles keep the smallest end of each length).
func ascending(pairs []pair) []pair {
	var piles []int // index into pairs of the last element of each length
	before := make([]int, len(pairs))
	for i, p := range pairs {
		n := sort.Search(len(piles), func(j int) bool { return pairs[piles[j]].new > p.new })
		before[i] = -1
		if n > 0 {
			before[i] = piles[n-1]
		}
		if n == len(piles) {
			piles = append(piles, i)
		} else {
			piles[n] = i
		}
	}
	var run []pair
	if len(piles) > 0 {
		for i := piles[len(piles)-1]; i >= 0; i = before[i] {
			run = append(run, pairs[i])
		}
	}
	slices.Reverse(run)
	return run
}
