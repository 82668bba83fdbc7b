package merge3

import (
	"math"
	"slices"
)

const (
	// minCost is how many differences a search finds at least before it stops at the best so far.
	minCost = 256
	// quickCost takes its place when the budget is used up. It makes the rest of a comparison
	// linear.
	quickCost = 8
	// A search of more than minCost differences stops at a way that is promising: it has come
	// goodPace lines for each difference, and at least goodRun equal lines were the last.
	goodPace, goodRun = 4, 20
)

// matcher compares the candidates of two versions.
type matcher struct {
	old, new candidates
	work     *budget
	maxCost  int
	// forward and backward have for each diagonal (old line minus new line) how far a search from
	// the start and from the end came, in old lines. zero is the index of diagonal 0.
	forward, backward []int
	zero              int
}

// match marks the candidates that differ.
func (m *matcher) match() {
	diagonals := len(m.old.lines) + len(m.new.lines) + 3
	m.forward, m.backward = make([]int, diagonals), make([]int, diagonals)
	m.zero = len(m.new.lines) + 1
	m.maxCost = max(roughRoot(diagonals), minCost)
	m.box(Span{0, len(m.old.lines)}, Span{0, len(m.new.lines)}, false)
}

// box marks the differences between two runs. With exact, the search does not stop early.
func (m *matcher) box(a, b Span, exact bool) {
	for {
		for a.Start < a.End && b.Start < b.End && m.old.lines[a.Start] == m.new.lines[b.Start] {
			a.Start, b.Start = a.Start+1, b.Start+1
		}
		for a.Start < a.End && b.Start < b.End && m.old.lines[a.End-1] == m.new.lines[b.End-1] {
			a.End, b.End = a.End-1, b.End-1
		}
		if a.Start == a.End || b.Start == b.End || m.work.ended() {
			m.old.mark(a)
			m.new.mark(b)
			return
		}
		s := search{matcher: m, a: a, b: b, exact: exact}
		at := s.middle()
		if at.old+at.new-a.Start-b.Start < a.End+b.End-at.old-at.new { // recurse into the smaller part
			m.box(Span{a.Start, at.old}, Span{b.Start, at.new}, at.exactBefore)
			a.Start, b.Start, exact = at.old, at.new, at.exactAfter
		} else {
			m.box(Span{at.old, a.End}, Span{at.new, b.End}, at.exactAfter)
			a.End, b.End, exact = at.old, at.new, at.exactBefore
		}
	}
}

// split is where a search cuts a box in two. exactBefore and exactAfter say for which part the
// cost is known to be the lowest.
type split struct {
	old, new                int
	exactBefore, exactAfter bool
}

// search looks for the middle of a shortest way through a box, from both ends.
type search struct {
	*matcher
	a, b  Span
	exact bool
	// first and last are the diagonals of the start and the end, and ran says that the last step
	// found a long run of equal lines.
	first, last   int
	ran           bool
	ahead, behind diagonals
}

// diagonals is the range that one of the two searches is in.
type diagonals struct{ low, high int }

// widen extends the range by one at each end, or narrows it at an end of the box. The place
// outside it gets the value unreached.
func (d *diagonals) widen(low, high int, reached []int, zero, unreached int) {
	if d.low > low {
		d.low--
		reached[zero+d.low-1] = unreached
	} else {
		d.low++
	}
	if d.high < high {
		d.high++
		reached[zero+d.high+1] = unreached
	} else {
		d.high--
	}
}

// middle returns the cut.
func (s *search) middle() split {
	low, high := s.a.Start-s.b.End, s.a.End-s.b.Start
	s.first, s.last = s.a.Start-s.b.Start, s.a.End-s.b.End
	s.ahead, s.behind = diagonals{s.first, s.first}, diagonals{s.last, s.last}
	s.forward[s.zero+s.first], s.backward[s.zero+s.last] = s.a.Start, s.a.End
	odd := (s.first-s.last)&1 != 0
	for cost := 1; ; cost++ {
		s.ran = false
		s.ahead.widen(low, high, s.forward, s.zero, -1)
		if at, met := s.goAhead(odd); met {
			return at
		}
		s.behind.widen(low, high, s.backward, s.zero, math.MaxInt)
		if at, met := s.goBack(!odd); met {
			return at
		}
		switch {
		case s.work.ended(), s.work.isUsedUp() && cost >= quickCost:
			return s.best()
		case s.exact:
			continue
		case s.ran && cost > minCost:
			if at, is := s.promising(cost); is {
				return at
			}
		}
		if cost >= s.maxCost {
			return s.best()
		}
	}
}

// promising returns a cut at the end of a way that is clearly better than the others.
func (s *search) promising(cost int) (at split, is bool) {
	if at, is = s.promisingAhead(cost); is {
		return at, true
	}
	return s.promisingBehind(cost)
}

func (s *search) promisingAhead(cost int) (at split, is bool) {
	best := goodPace * cost
	for d := s.ahead.high; d >= s.ahead.low; d -= 2 {
		i := s.forward[s.zero+d]
		j := i - d
		far := i - s.a.Start + j - s.b.Start - distance(d, s.first)
		if far > best && s.a.Start+goodRun <= i && i < s.a.End && s.b.Start+goodRun <= j && j < s.b.End &&
			s.isRun(i-goodRun, j-goodRun) {
			best, at, is = far, split{i, j, true, false}, true
		}
	}
	return at, is
}

func (s *search) promisingBehind(cost int) (at split, is bool) {
	best := goodPace * cost
	for d := s.behind.high; d >= s.behind.low; d -= 2 {
		i := s.backward[s.zero+d]
		j := i - d
		far := s.a.End - i + s.b.End - j - distance(d, s.last)
		if far > best && s.a.Start < i && i <= s.a.End-goodRun && s.b.Start < j && j <= s.b.End-goodRun &&
			s.isRun(i, j) {
			best, at, is = far, split{i, j, false, true}, true
		}
	}
	return at, is
}

func distance(a, b int) int { return max(a-b, b-a) }

// isRun reports whether goodRun lines from i and j on are equal.
func (s *search) isRun(i, j int) bool {
	return slices.Equal(s.old.lines[i:i+goodRun], s.new.lines[j:j+goodRun])
}

// goAhead makes the forward search one step longer. meets says that it can meet the other one.
func (s *search) goAhead(meets bool) (at split, met bool) {
	for d := s.ahead.high; d >= s.ahead.low; d -= 2 {
		k := s.zero + d
		i := s.forward[k+1]
		if s.forward[k-1] >= i {
			i = s.forward[k-1] + 1
		}
		from := i
		for i < s.a.End && i-d < s.b.End && s.old.lines[i] == s.new.lines[i-d] {
			i++
		}
		s.work.use(1 + i - from)
		s.ran = s.ran || i-from > goodRun
		s.forward[k] = i
		if meets && s.behind.low <= d && d <= s.behind.high && s.backward[k] <= i {
			return split{i, i - d, true, true}, true
		}
	}
	return at, false
}

// goBack makes the backward search one step longer.
func (s *search) goBack(meets bool) (at split, met bool) {
	for d := s.behind.high; d >= s.behind.low; d -= 2 {
		k := s.zero + d
		i := s.backward[k-1]
		if i >= s.backward[k+1] {
			i = s.backward[k+1] - 1
		}
		from := i
		for i > s.a.Start && i-d > s.b.Start && s.old.lines[i-1] == s.new.lines[i-d-1] {
			i--
		}
		s.work.use(1 + from - i)
		s.ran = s.ran || from-i > goodRun
		s.backward[k] = i
		if meets && s.ahead.low <= d && d <= s.ahead.high && i <= s.forward[k] {
			return split{i, i - d, true, true}, true
		}
	}
	return at, false
}

// best returns the cut at which one of the searches came farthest.
func (s *search) best() split {
	front, back := split{exactBefore: true}, split{exactAfter: true}
	far, near := -1, math.MaxInt
	for d := s.ahead.high; d >= s.ahead.low; d -= 2 {
		i := min(s.forward[s.zero+d], s.a.End, s.b.End+d)
		if sum := 2*i - d; sum > far {
			far, front.old, front.new = sum, i, i-d
		}
	}
	for d := s.behind.high; d >= s.behind.low; d -= 2 {
		i := max(s.backward[s.zero+d], s.a.Start, s.b.Start+d)
		if sum := 2*i - d; sum < near {
			near, back.old, back.new = sum, i, i-d
		}
	}
	if s.a.End+s.b.End-near < far-s.a.Start-s.b.Start {
		return front
	}
	return back
}
