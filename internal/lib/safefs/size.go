package safefs

import "math"

// AddSizes returns the sum of file sizes, limited to the range of int64: sparse files may have any
// size, and their sum must not overflow.
func AddSizes(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}
