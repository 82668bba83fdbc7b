package main

import (
	"math"
	"slices"
)

// samples are the values of one place in one row, by round; NaN where a round
// gave none.
type samples []float64

func newSamples(rounds int) samples {
	s := make(samples, rounds)
	for i := range s {
		s[i] = math.NaN()
	}
	return s
}

// summary is what the table says about samples.
type summary struct {
	Count            int
	Median, Min, Max float64
}

// Summary is zero when there is no sample.
func (s samples) Summary() summary {
	v := s.present()
	if len(v) == 0 {
		return summary{}
	}
	slices.Sort(v)
	return summary{Count: len(v), Median: median(v), Min: v[0], Max: v[len(v)-1]}
}

// RatioTo is the median of the ratios within a round, over the rounds in which
// both were measured; 0 when there is none. Pairing takes the drift of a shared
// machine out of the ratio, so it may differ a little from the ratio of the
// two medians.
func (s samples) RatioTo(base samples) float64 {
	return s.paired(base, func(own, base float64) float64 { return own / base })
}

// Above is the median of the differences within a round, like RatioTo.
func (s samples) Above(base samples) float64 {
	return s.paired(base, func(own, base float64) float64 { return own - base })
}

func (s samples) paired(base samples, compare func(own, base float64) float64) float64 {
	var values []float64
	for i := range min(len(s), len(base)) {
		if q := compare(s[i], base[i]); base[i] > 0 && !math.IsNaN(q) {
			values = append(values, q)
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return median(values)
}

func (s samples) present() []float64 {
	var v []float64
	for _, x := range s {
		if !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}

// median takes sorted values, at least one.
func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
