package ignore

import "strings"

// wild is the part of a pattern from its first wildcard on: an automaton whose states are the
// steps. It needs at most len(text) × len(wild) moves for any wildcards.
type wild []step

// step is one state. The state after the last one is the match.
type step struct {
	kind stepKind
	set  *byteSet // of stepSet
	b    byte     // of stepByte
}

type stepKind uint8

const (
	stepByte  stepKind = iota // matches the byte b
	stepSet                   // matches a byte of the set
	stepStar                  // matches any number of bytes except slashes
	stepDeep                  // matches any number of bytes
	stepDirs                  // precedes stepDeep and a slash, which are optional
	stepNever                 // matches nothing: the pattern is malformed
)

// byteSet has a bit for each byte.
type byteSet [4]uint64

func (s *byteSet) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *byteSet) remove(b byte)   { s[b>>6] &^= 1 << (b & 63) }
func (s *byteSet) has(b byte) bool { return s[b>>6]&(1<<(b&63)) != 0 }

func (s *byteSet) invert() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// anyByte is what "?" matches: one byte, not one character.
var anyByte = func() *byteSet {
	s := new(byteSet)
	s.invert()
	s.remove('/')
	return s
}()

// compileWild reads s. In a pattern for a path, "**" between slashes differs from "*". The
// beginning of s counts as a slash, whatever the literal prefix ends with, as in git.
func compileWild(s string, isPath bool) wild {
	var w wild
	for i := 0; i < len(s); {
		switch s[i] {
		case '*':
			end := len(s) - len(strings.TrimLeft(s[i:], "*"))
			w = append(w, starSteps(s, i, end, isPath)...)
			i = end
		case '?':
			w = append(w, step{kind: stepSet, set: anyByte})
			i++
		case '[':
			set, end := parseSet(s, i+1)
			if set == nil {
				return append(w, step{kind: stepNever})
			}
			w = append(w, step{kind: stepSet, set: set})
			i = end
		case '\\':
			if i++; i == len(s) {
				return append(w, step{kind: stepNever})
			}
			fallthrough
		default:
			w = append(w, step{kind: stepByte, b: s[i]})
			i++
		}
	}
	return w
}

// starSteps are the steps of the stars s[from:to].
func starSteps(s string, from, to int, isPath bool) []step {
	rest := s[to:]
	alone := (from == 0 || s[from-1] == '/') && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`))
	switch {
	case !isPath || to-from == 1 || !alone:
		return []step{{kind: stepStar}}
	case rest != "" && rest[0] == '/':
		return []step{{kind: stepDirs}, {kind: stepDeep}} // the slash comes next
	}
	return []step{{kind: stepDeep}}
}

// runs returns the sequences of literal bytes in w, without optional ones.
func (w wild) runs() []string {
	var runs []string
	var run []byte
	for i, s := range w {
		optional := i >= 2 && w[i-2].kind == stepDirs // its slash
		if s.kind == stepByte && !optional {
			run = append(run, s.b)
			continue
		}
		if len(run) > 0 {
			runs, run = append(runs, string(run)), nil
		}
	}
	if len(run) > 0 {
		runs = append(runs, string(run))
	}
	return runs
}

// match reports whether w matches all of text.
func (w wild) match(text string) bool {
	var a, b [4]uint64 // enough for most patterns, and on the stack
	now, next := states(a[:]), states(b[:])
	if n := len(w)/64 + 1; n > len(a) {
		now, next = make(states, n), make(states, n)
	}
	w.enter(now, 0)
	for i := range len(text) {
		if now.empty() {
			return false
		}
		clear(next)
		now.each(func(at int) { w.move(next, at, text[i]) })
		now, next = next, now
	}
	return now.has(len(w))
}

// enter adds the state at, and those that it reaches without a byte.
func (w wild) enter(to states, at int) {
	if to.has(at) {
		return
	}
	to.add(at)
	if at == len(w) {
		return
	}
	switch w[at].kind {
	case stepStar, stepDeep:
		w.enter(to, at+1)
	case stepDirs:
		w.enter(to, at+1)
		w.enter(to, at+3)
	case stepByte, stepSet, stepNever:
	}
}

// move adds the states that the state at reaches with the byte b.
func (w wild) move(to states, at int, b byte) {
	if at == len(w) {
		return
	}
	switch s := w[at]; s.kind {
	case stepByte:
		if b == s.b {
			w.enter(to, at+1)
		}
	case stepSet:
		if s.set.has(b) {
			w.enter(to, at+1)
		}
	case stepStar:
		if b != '/' {
			w.enter(to, at)
		}
	case stepDeep:
		w.enter(to, at)
	case stepDirs, stepNever:
	}
}
