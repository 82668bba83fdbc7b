package merge3

import "unicode"

// origin is which version has changed the lines of a chunk.
type origin uint8

const (
	both origin = iota // in conflict
	oursOnly
	theirsOnly
	neither // both versions have the same lines
)

// chunk is a place at which a version differs from the base.
type chunk struct {
	from               origin
	base, ours, theirs Span
}

// combine returns the chunks of the edits of both versions. Edits of both that overlap or touch
// each other are in conflict, unless they are the same.
func combine(ours, theirs []edit, ourLines, theirLines []int) []chunk {
	l := list{}
	shiftOurs, shiftTheirs := 0, 0 // from a line of the base to that of the version
	for len(ours) > 0 || len(theirs) > 0 {
		switch {
		case len(theirs) == 0 || len(ours) > 0 && ours[0].old.End < theirs[0].old.Start:
			e := ours[0]
			l.add(chunk{oursOnly, e.old, e.new, e.old.moved(shiftTheirs)})
			shiftOurs, ours = e.shift(), ours[1:]
			continue
		case len(ours) == 0 || theirs[0].old.End < ours[0].old.Start:
			e := theirs[0]
			l.add(chunk{theirsOnly, e.old, e.old.moved(shiftOurs), e.new})
			shiftTheirs, theirs = e.shift(), theirs[1:]
			continue
		}
		o, t := ours[0], theirs[0]
		if o.old != t.old || !isSame(ourLines, o.new, theirLines, t.new) {
			l.add(overlap(o, t))
		}
		if o.old.End <= t.old.End {
			shiftOurs, ours = o.shift(), ours[1:]
		}
		if t.old.End <= o.old.End {
			shiftTheirs, theirs = t.shift(), theirs[1:]
		}
	}
	return l
}

func (s Span) moved(by int) Span { return Span{s.Start + by, s.End + by} }

// shift is how far the lines after the edit are from those of the base.
func (e edit) shift() int { return e.new.End - e.old.End }

// overlap returns the conflict of two edits, with the lines that only one of them has changed.
func overlap(o, t edit) chunk {
	c := chunk{both, Span{min(o.old.Start, t.old.Start), max(o.old.End, t.old.End)}, o.new, t.new}
	c.ours.Start -= o.old.Start - c.base.Start
	c.theirs.Start -= t.old.Start - c.base.Start
	c.ours.End += c.base.End - o.old.End
	c.theirs.End += c.base.End - t.old.End
	return c
}

// list is a list of chunks.
type list []chunk

// add appends a chunk, or joins it with the last one if they touch each other.
func (l *list) add(c chunk) {
	if n := len(*l); n > 0 {
		last := &(*l)[n-1]
		if c.ours.Start <= last.ours.End || c.theirs.Start <= last.theirs.End {
			if last.from != c.from {
				last.from = both
			}
			last.base.End, last.ours.End, last.theirs.End = c.base.End, c.ours.End, c.theirs.End
			return
		}
	}
	*l = append(*l, c)
}

// refine reduces each conflict to the lines that differ between the versions, and joins conflicts
// that are so close to each other that a person reads them as one.
func (r *Result) refine(ours, theirs []int, work *budget) []chunk {
	var refined []chunk
	for _, c := range r.chunks {
		if c.from != both || c.ours.Start == c.ours.End || c.theirs.Start == c.theirs.End {
			refined = append(refined, c)
			continue
		}
		edits := compare(ours[c.ours.Start:c.ours.End], theirs[c.theirs.Start:c.theirs.End], work)
		if len(edits) == 0 {
			c.from = neither
			refined = append(refined, c)
		}
		for _, e := range edits {
			refined = append(refined, chunk{both, c.base, e.old.moved(c.ours.Start), e.new.moved(c.theirs.Start)})
		}
	}
	return r.join(refined)
}

// fewLines is how many equal lines between two conflicts a person reads as part of them.
const fewLines = 3

// join joins conflicts with few lines between them, or only lines without letters and digits.
func (r *Result) join(chunks []chunk) []chunk {
	var joined []chunk
	for _, c := range chunks {
		if n := len(joined); n > 0 && c.from == both && joined[n-1].from == both {
			last := &joined[n-1]
			if c.ours.Start-last.ours.End <= fewLines || !hasWords(r.ourLines[last.ours.End:c.ours.Start]) {
				last.base.End, last.ours.End, last.theirs.End = c.base.End, c.ours.End, c.theirs.End
				continue
			}
		}
		joined = append(joined, c)
	}
	return joined
}

func hasWords(lines []string) bool {
	for _, line := range lines {
		for i := range len(line) {
			if c := rune(line[i]); c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
				return true
			}
		}
	}
	return false
}
