package glob

// A token that takes characters reads a name as utf8.DecodeRuneInString does: a whole character
// where the bytes are valid UTF-8, else one byte. An automaton reads one byte at a time, so it
// follows both possibilities, each with what must come next for it to be right.

type partialKind uint8

const (
	complete    partialKind = iota // nothing must come
	inCharacter                    // within a valid character
	broken                         // after a byte read alone: what completes a character must not come
)

// partial is what the next bytes must be, or must not be. Zero demands nothing.
type partial struct {
	kind      partialKind
	left      uint8  // bytes that complete the character
	low, high byte   // bounds of the next of them
	bits      uint32 // the character so far, while it decides whether a class has it; else 0
	open      bool   // bits decide
}

func (p partial) key() uint64 {
	key := uint64(p.bits)<<32 | uint64(p.low)<<24 | uint64(p.high)<<16 | uint64(p.left)<<8 | uint64(p.kind)
	if p.open {
		key |= 1 << 7
	}
	return key
}

// sequence describes the valid characters that begin with a byte (Unicode, table 3-7).
type sequence struct {
	left      uint8
	low, high byte // bounds of the second byte
	bits      uint32
}

func sequenceOf(b byte) (sequence, bool) {
	s := sequence{low: 0x80, high: 0xbf}
	switch {
	case b < 0xc2 || b > 0xf4:
		return s, false
	case b < 0xe0:
		s.left, s.bits = 1, uint32(b&0x1f)
	case b < 0xf0:
		s.left, s.bits = 2, uint32(b&0x0f)
	default:
		s.left, s.bits = 3, uint32(b&0x07)
	}
	switch b {
	case 0xe0:
		s.low = 0xa0
	case 0xed:
		s.high = 0x9f
	case 0xf0:
		s.low = 0x90
	case 0xf4:
		s.high = 0x8f
	}
	return s, true
}

// byteGroup groups the bytes that mean the same to sequenceOf, and as a second byte.
func byteGroup(b byte) int {
	for i, first := range []byte{0xf5, 0xf4, 0xf1, 0xf0, 0xee, 0xed, 0xe1, 0xe0, 0xc2, 0xc0, 0xa0, 0x90, 0x80} {
		if b >= first {
			return i + 1
		}
	}
	return 0
}

// firstByte returns how a name can go on after b, the first byte of a character that a token takes;
// class is nil for any character. before is what earlier bytes demand.
func firstByte(b byte, before partial, class *Class) []partial {
	if b < 0x80 {
		if class.takes(rune(b)) {
			return []partial{{}}
		}
		return nil
	}
	s, ok := sequenceOf(b)
	if !ok {
		if class.takesBroken() {
			return []partial{before}
		}
		return nil
	}
	var out []partial
	if whole, ok := (partial{inCharacter, s.left, s.low, s.high, s.bits, true}).decide(class); ok {
		out = append(out, whole)
	}
	if class.takesBroken() {
		out = append(out, partial{kind: broken, left: s.left, low: s.low, high: s.high})
	}
	return out
}

// next is p, within a character, after one more byte; not ok if the byte or the character is wrong.
func (p partial) next(b byte, class *Class) (partial, bool) {
	if b < p.low || b > p.high {
		return p, false
	}
	p.left--
	p.low, p.high = 0x80, 0xbf
	if p.open {
		p.bits = p.bits<<6 | uint32(b&0x3f)
		return p.decide(class)
	}
	if p.left == 0 {
		p = partial{}
	}
	return p, true
}

// decide forgets the bits when all characters that begin with them are alike to class; not ok if it
// takes none of them.
func (p partial) decide(class *Class) (partial, bool) {
	low := rune(p.bits << (6 * p.left))
	high := low + 1<<(6*p.left) - 1
	if p.left > 0 && class.divides(low, high) {
		return p, true
	}
	p.bits, p.open = 0, false
	if p.left == 0 {
		p = partial{}
	}
	return p, class.takes(high)
}

// stillBroken is what p, which is not within a character, demands after one more byte; not ok if
// the byte completes the character that was not to be.
func (p partial) stillBroken(b byte) (partial, bool) {
	if p.kind != broken || b < p.low || b > p.high {
		return partial{}, true
	}
	p.left--
	p.low, p.high = 0x80, 0xbf
	return p, p.left > 0
}

// takes reports whether a token takes the character r; a nil class takes any.
func (c *Class) takes(r rune) bool { return c == nil || c.Holds(r) != c.Negated }

// takesBroken reports whether a token takes a byte of broken UTF-8.
func (c *Class) takesBroken() bool { return c == nil || c.Negated }

// divides reports whether c may take some of the characters from low to high and others not.
func (c *Class) divides(low, high rune) bool {
	if c == nil {
		return false
	}
	for _, r := range c.Ranges {
		within := r.Low <= low && high <= r.High
		apart := high < r.Low || r.High < low
		if !within && !apart {
			return true
		}
	}
	return false
}
