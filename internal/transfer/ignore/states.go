package ignore

import "math/bits"

// states is a set of states, one bit for each.
type states []uint64

func (s states) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s states) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

func (s states) empty() bool {
	for _, word := range s {
		if word != 0 {
			return false
		}
	}
	return true
}

// each calls do for each state of the set.
func (s states) each(do func(int)) {
	for n, word := range s {
		for ; word != 0; word &= word - 1 {
			do(n*64 + bits.TrailingZeros64(word))
		}
	}
}
