package glob

import (
	"cmp"
	"slices"
)

// placeSet is a set of places that many states share.
type placeSet struct {
	places    []place
	has       map[place]bool
	matched   []int // globs that match here
	read      byteSet
	moves     map[byte]found
	starMoves [256]*starMoves
}

// byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(b byte)      { s[b>>6] |= 1 << (b & 63) }
func (s *byteSet) has(b byte) bool { return s[b>>6]&(1<<(b&63)) != 0 }

// addRead adds the bytes that lead on from p, or all.
func (a *automaton) addRead(s *byteSet, p place) {
	tokens := a.globs[p.glob].Tokens
	switch {
	case int(p.token) == len(tokens):
	case tokens[p.token].Kind == Literal:
		s.add(tokens[p.token].Literal[p.at])
	default:
		*s = byteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	}
}

// starMoves are the sets to which a byte leads from places at stars.
type starMoves struct{ stars, fresh int32 }

// set returns the index of the set of places.
func (a *automaton) set(places []place) int32 {
	key := string(appendPlaces(nil, places))
	i, ok := a.known[key]
	if ok {
		return i
	}
	s := placeSet{places: slices.Clone(places), has: map[place]bool{}, moves: map[byte]found{}}
	for _, p := range s.places {
		s.has[p] = true
		a.addRead(&s.read, p)
		if a.ends(p) {
			s.matched = append(s.matched, int(p.glob))
		}
	}
	i = int32(len(a.sets))
	a.known[key] = i
	a.sets = append(a.sets, s)
	return i
}

// starSet returns the index of the set of stars, the last of each glob first, without those before
// one that takes all.
func (a *automaton) starSet(stars []place) int32 {
	a.work += 4 * len(stars)
	slices.SortFunc(stars, func(p, q place) int {
		return cmp.Or(cmp.Compare(p.glob, q.glob), -cmp.Compare(p.token, q.token), p.compare(q))
	})
	kept := stars[:0]
	for _, p := range stars {
		last := len(kept) - 1
		if last >= 0 && (kept[last] == p || kept[last].glob == p.glob && a.takesAll(kept[last])) {
			continue
		}
		kept = append(kept, p)
	}
	return a.set(kept)
}

// covered reports whether a star of the set takes also whatever the place p would.
func (a *automaton) covered(p place, stars int32) bool {
	places := a.sets[stars].places
	i, ok := slices.BinarySearchFunc(places, p.glob, func(star place, glob int32) int { return int(star.glob - glob) })
	return ok && a.takesAll(places[i]) && p.token <= places[i].token
}

// moves is where b leads from the places of a set.
func (a *automaton) moves(set int32, b byte) found {
	f, ok := a.sets[set].moves[b]
	if !ok {
		a.work += len(a.sets[set].places)
		for _, p := range a.sets[set].places {
			a.read(&f, p, b)
		}
		a.sets[set].moves[b] = f
	}
	return f
}

// starMoves is where b leads from a set of stars, and from the tokens after them, which may begin
// at once.
func (a *automaton) starMoves(set int32, b byte) starMoves {
	if known := a.sets[set].starMoves[b]; known != nil {
		return *known
	}
	a.work += len(a.sets[set].places)
	var m starMoves
	var f found
	for _, star := range a.sets[set].places {
		a.read(&f, star, b)
		after := place{glob: star.glob, token: star.token + 1, rest: star.rest}
		if star.rest.kind != inCharacter && int(after.token) < len(a.globs[star.glob].Tokens) {
			a.read(&f, after, b)
		}
	}
	m.stars = a.starSet(f.stars)
	active := slices.DeleteFunc(f.active, func(p place) bool { return a.covered(p, m.stars) })
	slices.SortFunc(active, place.compare)
	m.fresh = a.set(slices.Compact(active))
	a.sets[set].starMoves[b] = &m
	return m
}
