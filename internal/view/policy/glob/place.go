package glob

import "cmp"

// place is where a glob is after a beginning of a name: the tokens before token have matched, and
// at bytes of the literal there.
type place struct {
	glob      int32
	token, at int16
	rest      partial
}

func (p place) compare(q place) int {
	return cmp.Or(
		cmp.Compare(p.glob, q.glob), cmp.Compare(p.token, q.token), cmp.Compare(p.at, q.at),
		cmp.Compare(p.rest.key(), q.rest.key()),
	)
}

// placeBytes is what a place takes in a key.
const placeBytes = 16

func appendPlaces(b []byte, places []place) []byte {
	for _, p := range places {
		b = append(b, byte(p.glob), byte(p.glob>>8), byte(p.glob>>16), byte(p.glob>>24))
		b = append(b, byte(p.token), byte(p.token>>8), byte(p.at), byte(p.at>>8))
		for key := p.rest.key(); ; key >>= 8 {
			b = append(b, byte(key))
			if len(b)%8 == 0 {
				break
			}
		}
	}
	return b
}

// found are places, those at stars apart.
type found struct{ stars, active []place }

// takesBytes reports whether the star at p takes any bytes. A star before ? or […] takes whole
// characters (Glob.stride).
func (a *automaton) takesBytes(p place) bool {
	tokens := a.globs[p.glob].Tokens
	return int(p.token)+1 == len(tokens) || tokens[p.token+1].Kind == Literal
}

// takesAll reports whether p is at a star that takes any bytes from here on.
func (a *automaton) takesAll(p place) bool { return p.rest == (partial{}) && a.takesBytes(p) }

// ends reports whether the glob matches at p: it is at the end, or before a star that is the end.
func (a *automaton) ends(p place) bool {
	tokens := a.globs[p.glob].Tokens
	left := len(tokens) - int(p.token)
	return left == 0 || left == 1 && tokens[p.token].Kind == Star
}

// enter finds p, at the beginning of its token.
func (a *automaton) enter(f *found, p place) {
	tokens := a.globs[p.glob].Tokens
	if int(p.token) < len(tokens) && tokens[p.token].Kind == Star {
		f.stars = append(f.stars, p)
		return
	}
	f.active = append(f.active, p)
}

// read finds where the byte b leads from p.
func (a *automaton) read(f *found, p place, b byte) {
	tokens := a.globs[p.glob].Tokens
	if int(p.token) == len(tokens) {
		return
	}
	t := &tokens[p.token]
	if p.rest.kind == inCharacter {
		if rest, ok := p.rest.next(b, t.Class); ok {
			a.passed(f, p, rest)
		}
		return
	}
	broken, ok := p.rest.stillBroken(b)
	switch {
	case !ok:
	case t.Kind == Literal:
		if t.Literal[p.at] != b {
			return
		}
		p.at, p.rest = p.at+1, broken
		if int(p.at) == len(t.Literal) {
			a.enter(f, place{glob: p.glob, token: p.token + 1, rest: broken})
			return
		}
		f.active = append(f.active, p)
	case t.Kind == Star && a.takesBytes(p):
		a.enter(f, place{glob: p.glob, token: p.token, rest: broken})
	default:
		for _, rest := range firstByte(b, broken, t.Class) {
			a.passed(f, p, rest)
		}
	}
}

// passed goes on after a byte of a character that the token at p takes.
func (a *automaton) passed(f *found, p place, rest partial) {
	switch {
	case rest.kind == inCharacter:
		p.rest = rest
		a.enter(f, p)
	case a.globs[p.glob].Tokens[p.token].Kind == Star:
		a.enter(f, place{glob: p.glob, token: p.token, rest: rest})
	default:
		a.enter(f, place{glob: p.glob, token: p.token + 1, rest: rest})
	}
}
