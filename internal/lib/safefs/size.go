package safefs

import "math"

// AddSizes returns the sum of sizes of files, or the nearest number there is: a
// file with holes may be of any size, and many such must not seem to be few.
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
