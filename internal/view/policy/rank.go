package policy

import "math"

// rank orders rules: of two that match a path the higher rank wins. It is one
// number, so the order is total. Ranks compare first by standing:
//
//	reserved path > --hide > a flag naming exactly this file > rule > flag
//
// and within a standing by priority, then type (file > directory > glob), then the length of the
// literal prefix, then fewer wildcards (a pattern that takes everything below its literal prefix
// has the most), then the stricter permission. Of rules that still tie the one with the stricter
// transform wins; the others permit the same, and the first is named. In bits, most significant
// first:
//
//	standing 3 bits · priority 32 · type 2 · literal prefix 13 · wildcards 12 · strictness 2
//
// A widening flag (--write, --read, --view) that matches a path where the winning rule is not a
// none-rule replaces what that rule permits and takes over its rank. So a flag never beats a
// none-rule that wins, always beats every other rule, and never hides what the rules alone would
// show.
//
// Zero is below every rule: no rule.
type rank uint64

// standing is the most significant part of a rank.
type standing uint8

const (
	standsNowhere  standing = iota
	standsFlag              // --write, --read, --view
	standsRule              // policy file, preset, API
	standsExact             // a widening flag of type file, at the very path it names
	standsHide              // --hide
	standsReserved          // Options.Reserved
)

const (
	strictBits   = 2
	wildcardBits = 12
	prefixBits   = 13
	typeBits     = 2
	priorityBits = 32

	wildcardShift = strictBits
	prefixShift   = wildcardShift + wildcardBits
	typeShift     = prefixShift + prefixBits
	priorityShift = typeShift + typeBits
	standingShift = priorityShift + priorityBits

	mostWildcards = 1<<wildcardBits - 1
	// everythingBelow is what a pattern's wildcards are increased by if it takes
	// everything below its literal beginning.
	everythingBelow = 1 << (wildcardBits - 1)
	longestPrefix   = 1<<prefixBits - 1
)

// newRank is the rank of one alternative of r, whose type reads as kind.
func newRank(s standing, r Rule, kind PatternType, a alternative) rank {
	wildcards := min(a.wildcards, mostWildcards)
	prefix := min(a.prefix, longestPrefix)
	return rank(s)<<standingShift |
		rank(uint32(int64(r.Priority)-math.MinInt32))<<priorityShift |
		rank(kind)<<typeShift |
		rank(prefix)<<prefixShift |
		rank(mostWildcards-wildcards)<<wildcardShift |
		rank(Write-r.Permission)
}

func (k rank) standing() standing { return standing(k >> standingShift) }

// tied reports whether the ranks differ at most in how strict the rules are.
func (k rank) tied(other rank) bool { return k>>strictBits == other>>strictBits }

// lead names what makes the higher rank k win over the lower one.
func (k rank) lead(lower rank) string {
	switch diff := k ^ lower; {
	case diff>>standingShift != 0:
		return k.standing().lead(lower.standing())
	case diff>>priorityShift != 0:
		return "a higher priority wins"
	case diff>>typeShift != 0:
		return "file wins over directory, directory over glob"
	case diff>>prefixShift != 0:
		return "a longer literal beginning wins"
	case diff>>wildcardShift != 0:
		return "fewer wildcards win"
	case diff != 0:
		return "of equal rules the stricter wins"
	}
	return "of equal rules the first wins"
}

// lead names what makes the higher grant g win over the lower one.
func (g grant) lead(lower grant) string {
	if g.rank == lower.rank && g.transform != lower.transform {
		return "of equal rules the stricter wins"
	}
	return g.rank.lead(lower.rank)
}

func (s standing) lead(lower standing) string {
	switch s {
	case standsReserved:
		return "a reserved path is above all rules"
	case standsHide:
		return "--hide is above all other rules"
	case standsExact:
		return "a flag that names exactly this file is above all rules but --hide"
	case standsRule, standsFlag, standsNowhere:
	}
	if lower == standsFlag {
		return "a none rule is above a flag that does not name exactly this file"
	}
	return "a rule is above no rule"
}
