package merge3

// A text can often be compared in several ways that are equally short. The choice decides which
// changes touch each other, so it has to be git's: lines that cannot match are put aside, Myers'
// algorithm (An O(ND) Difference Algorithm and Its Variations, 1986, the variant in linear space)
// compares the others, and then each changed run is moved as far down as it goes, or to where the
// other version has a change, too.

// edit is a run of lines that was replaced; one of the spans may be without lines.
type edit struct{ old, new Span }

// version is a version of a text in a comparison.
type version struct {
	lines   []int
	changed []bool // of each line, and one more that is false
}

func newVersion(lines []int) *version {
	return &version{lines, make([]bool, len(lines)+1)}
}

// compare returns the edits from a to b, ascending and apart.
func compare(a, b []int, work *budget) []edit {
	before, after := newVersion(a), newVersion(b)
	same := Span{}
	least := min(len(a), len(b))
	for same.Start < least && a[same.Start] == b[same.Start] {
		same.Start++
	}
	tail := 0
	for tail < least-same.Start && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	inA, inB := count(a), count(b)
	if work.ended() {
		return nil
	}
	m := matcher{work: work}
	m.old = before.candidates(Span{same.Start, len(a) - tail}, inB)
	m.new = after.candidates(Span{same.Start, len(b) - tail}, inA)
	m.match()
	before.slide(after, work)
	after.slide(before, work)
	return edits(before, after)
}

// count returns how often each line occurs.
func count(lines []int) map[int]int {
	n := make(map[int]int, len(lines))
	for _, line := range lines {
		n[line]++
	}
	return n
}

// edits returns the changed runs of two versions, which have the same unchanged lines.
func edits(before, after *version) []edit {
	var list []edit
	i, j := 0, 0
	for i < len(before.lines) || j < len(after.lines) {
		e := edit{Span{i, before.runEnd(i)}, Span{j, after.runEnd(j)}}
		if e.old.End > i || e.new.End > j {
			list = append(list, e)
		}
		i, j = e.old.End+1, e.new.End+1
	}
	return list
}

// runEnd returns the end of the changed run that begins at line i.
func (v *version) runEnd(i int) int {
	for v.changed[i] {
		i++
	}
	return i
}

// How often the other version has a line.
const (
	never uint8 = iota
	seldom
	often
)

// maxOften is the highest bound from which on a line occurs often.
const maxOften = 1024

// candidates returns the lines in the span that are worth comparing, and marks the others as
// changed: those that the other version has not, and those that occur often and are among them.
func (v *version) candidates(in Span, other map[int]int) candidates {
	bound := min(roughRoot(len(v.lines)), maxOften)
	kinds := make([]uint8, in.End-in.Start)
	for i, line := range v.lines[in.Start:in.End] {
		switch n := other[line]; {
		case n >= bound:
			kinds[i] = often
		case n > 0:
			kinds[i] = seldom
		}
	}
	c := candidates{version: v}
	for i, kind := range kinds {
		at := in.Start + i
		if kind == never || kind == often && isAmongMissing(kinds, i) {
			v.changed[at] = true
			continue
		}
		c.index, c.lines = append(c.index, at), append(c.lines, v.lines[at])
	}
	return c
}

// candidates are the lines of a version that are compared, with their places.
type candidates struct {
	version *version
	index   []int
	lines   []int
}

// mark marks the candidates in the span as changed.
func (c *candidates) mark(s Span) {
	for _, at := range c.index[s.Start:s.End] {
		c.version.changed[at] = true
	}
}

const (
	nearby   = 100 // how many lines around a line count
	oftenPer = 4   // at most one of so many of them may occur often
)

// isAmongMissing reports whether the line i, which occurs often, is between lines that the other
// version has not: to match it with one of its many likes says nothing.
func isAmongMissing(kinds []uint8, i int) bool {
	missing, frequent := 0, 2
	for _, step := range []int{-1, 1} {
		here := 0
		for d := 1; d <= nearby; d++ {
			at := i + step*d
			if at < 0 || at >= len(kinds) || kinds[at] == seldom {
				break
			}
			if kinds[at] == never {
				here++
			} else {
				frequent++
			}
		}
		if here == 0 {
			return false
		}
		missing += here
	}
	return frequent*oftenPer < frequent+missing
}

// roughRoot returns a power of two near the square root of n.
func roughRoot(n int) int {
	root := 1
	for ; n > 0; n >>= 2 {
		root <<= 1
	}
	return root
}
