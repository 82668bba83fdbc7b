package glob

import (
	"errors"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// ErrTooComplex is what Classes returns beyond maxWork.
var ErrTooComplex = errors.New("the patterns overlap in too many ways to look at each")

// maxWork bounds the places that Classes looks at, for a second or two. A thousand patterns such as
// "*.ext" need a tenth of it; patterns with several stars multiply.
const maxWork = 1 << 23

// A NameClass are all names that match the same globs.
type NameClass struct {
	Matched []int // ascending indexes of the globs that match, in the list given to Classes
	Example string
}

// Classes returns every combination of globs that some name matches, each with a name of it. Names
// are those that vpath.CheckName accepts, without those in except. The answer is exact for all
// names, also where they are not valid UTF-8. Errors: ErrTooComplex.
//
// It runs all globs at once over all names, as an automaton that reads bytes: a state is the set of
// places in the globs that a beginning of a name leads to.
func Classes(globs []*Glob, except []string) ([]NameClass, error) {
	a := &automaton{
		globs: globs, except: newNameTree(append([]string{".", ".."}, except...)),
		groups: newGroups(globs, except), known: map[string]int32{}, seen: map[string]bool{},
	}
	return a.classes()
}

// automaton has what all states share.
type automaton struct {
	globs  []*Glob
	except nameTree
	groups []byte // one byte of each group of bytes that no place tells apart

	sets  []placeSet
	known map[string]int32 // sets, by their places
	seen  map[string]bool  // states
	work  int              // places looked at
}

// state is a set of places. Many states share most of them, so two parts of it are sets that all
// states refer to.
type state struct {
	stars  int32   // the set of places at stars, which stay as a rule
	fresh  int32   // the set of places that the last byte led to from stars
	active []place // the other places, sorted
	except int32   // node of the tree of excepted names
	parent int32   // index of the state before
	by     byte    // what led here
	length int16   // of the beginning, in bytes
}

// classes visits all states, those of the shortest names first.
func (a *automaton) classes() ([]NameClass, error) {
	states := []state{a.start()}
	known := map[string]bool{}
	var out []NameClass
	for i := 0; i < len(states); i++ {
		s := states[i]
		if s.length > 0 && !a.except.ends(s.except) {
			matched := a.matched(s)
			if key := keyOf(matched); !known[key] {
				known[key] = true
				out = append(out, NameClass{matched, nameOf(states, i)})
			}
		}
		if s.length == vpath.NameMax {
			continue
		}
		for _, b := range a.different(s) {
			next := a.step(s, b)
			if key := next.key(); !a.seen[key] {
				a.seen[key] = true
				next.parent, next.by, next.length = int32(i), b, s.length+1
				states = append(states, next)
			}
		}
		if a.work > maxWork {
			return nil, ErrTooComplex
		}
	}
	return out, nil
}

func keyOf(matched []int) string {
	b := make([]byte, 0, 4*len(matched))
	for _, m := range matched {
		b = append(b, byte(m), byte(m>>8), byte(m>>16), byte(m>>24))
	}
	return string(b)
}

// nameOf spells what led to states[i].
func nameOf(states []state, i int) string {
	name := make([]byte, states[i].length)
	for at := len(name) - 1; at >= 0; at-- {
		name[at] = states[i].by
		i = int(states[i].parent)
	}
	return string(name)
}

func (s *state) key() string {
	b := make([]byte, 0, 12+placeBytes*len(s.active))
	for _, n := range []int32{s.stars, s.fresh, s.except} {
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return string(appendPlaces(b, s.active))
}

// start is the state before the first byte.
func (a *automaton) start() state {
	var f found
	for i := range a.globs {
		a.enter(&f, place{glob: int32(i)})
	}
	return state{stars: a.starSet(f.stars), fresh: a.set(f.active)}
}

// step is the state after one more byte.
func (a *automaton) step(s state, b byte) state {
	moves, fresh := a.starMoves(s.stars, b), a.moves(s.fresh, b)
	f := found{stars: slices.Clone(fresh.stars), active: slices.Clone(fresh.active)}
	for _, p := range s.active {
		a.read(&f, p, b)
	}
	a.work += 1 + len(f.active)
	next := state{stars: moves.stars, fresh: moves.fresh, except: a.except.next(s.except, b)}
	if len(f.stars) > 0 {
		next.stars = a.starSet(append(f.stars, a.sets[moves.stars].places...))
	}
	next.active = slices.DeleteFunc(f.active, func(p place) bool {
		return a.sets[next.fresh].has[p] || a.covered(p, next.stars)
	})
	slices.SortFunc(next.active, place.compare)
	next.active = slices.Compact(next.active)
	return next
}

// different returns bytes that lead from s to different states, at least one for each such state.
func (a *automaton) different(s state) []byte {
	special := a.sets[s.fresh].read
	for b := range a.except.children(s.except) {
		special.add(b)
	}
	for _, p := range s.active {
		a.addRead(&special, p)
	}
	out := make([]byte, 0, len(a.groups))
	var known []starMoves
	for _, b := range a.groups {
		if !special.has(b) {
			moves := a.starMoves(s.stars, b)
			if slices.Contains(known, moves) {
				continue
			}
			known = append(known, moves)
		}
		out = append(out, b)
	}
	return out
}

// matched returns the globs that match the beginning as it is.
func (a *automaton) matched(s state) []int {
	out := slices.Concat(a.sets[s.stars].matched, a.sets[s.fresh].matched)
	for _, p := range s.active {
		if a.ends(p) {
			out = append(out, int(p.glob))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
