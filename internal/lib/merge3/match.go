package merge3

import "math"

// minCost is how many differences a search finds at least before it stops at the best so far.
const minCost = 256

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
		if a.Start == a.End || b.Start == b.End || *m.work <= 0 {
			m.old.mark(a)
			m.new.mark(b)
			return
		}
		s := search{matcher: m, a: a, b: b, exact: exact}
		at := s.middle()
		m.box(Span{a.Start, at.old}, Span{b.Start, at.new}, at.exactBefore)
		a.Start, b.Start, exact = at.old, at.new, at.exactAfter
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
	first, last := s.a.Start-s.b.Start, s.a.End-s.b.End
	s.ahead, s.behind = diagonals{first, first}, diagonals{last, last}
	s.forward[s.zero+first], s.backward[s.zero+last] = s.a.Start, s.a.End
	odd := (first-last)&1 != 0
	for cost := 1; ; cost++ {
		s.ahead.widen(low, high, s.forward, s.zero, -1)
		if at, met := s.goAhead(odd); met {
			return at
		}
		s.behind.widen(low, high, s.backward, s.zero, math.MaxInt)
		if at, met := s.goBack(!odd); met {
			return at
		}
		if *s.work <= 0 || !s.exact && cost >= s.maxCost {
			return s.best()
		}
	}
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
		*s.work -= budget(1 + i - from)
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
		*s.work -= budget(1 + from - i)
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
