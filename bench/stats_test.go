package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var none = math.NaN()

func TestSummary(t *testing.T) {
	tests := []struct {
		name string
		in   samples
		want summary
	}{
		{name: "of nothing is zero", in: newSamples(3)},
		{name: "of an odd number takes the middle", in: samples{9, 1, 5}, want: summary{Count: 3, Median: 5, Min: 1, Max: 9}},
		{name: "of an even number takes the mean of the middle two", in: samples{1, 100, 3, 5}, want: summary{Count: 4, Median: 4, Min: 1, Max: 100}},
		{name: "leaves out the rounds without a sample", in: samples{none, 2, none}, want: summary{Count: 1, Median: 2, Min: 2, Max: 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.in.Summary()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRatioTo(t *testing.T) {
	tests := []struct {
		name      string
		own, base samples
		want      float64
	}{
		{name: "is that of paired rounds: a slow round that hit both does not show", own: samples{2, 20, 2}, base: samples{1, 10, 1}, want: 2},
		{name: "is the median of the rounds", own: samples{1, 2, 9}, base: samples{1, 1, 1}, want: 2},
		{name: "leaves out rounds in which one is missing", own: samples{2, none, 8}, base: samples{1, 1, none}, want: 2},
		{name: "is zero without a pair", own: samples{2, none}, base: samples{none, 1}},
		{name: "is zero without a base", own: samples{2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.own.RatioTo(tt.base); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestAMedianLiesBetweenLeastAndMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := samples(rapid.SliceOfN(rapid.Float64Range(0, 1e12), 1, 20).Draw(t, "samples"))
		sum := s.Summary()
		if sum.Median < sum.Min || sum.Median > sum.Max || sum.Count != len(s) {
			t.Fatalf("%+v of %v", sum, s)
		}
	})
}

func TestJudge(t *testing.T) {
	one, two := samples{1, 1}, samples{2, 2}
	tests := []struct {
		name                 string
		bound                bound
		own, native, overlay samples
		want                 verdict
	}{
		{name: "nothing asked", own: one, native: one, want: notAsked},
		{name: "nothing measured", bound: bound{Ratio: 2}, native: one, want: notMeasured},
		{name: "no native to compare with", bound: bound{Ratio: 2}, own: one, want: notMeasured},
		{name: "exactly the ratio is met", bound: bound{Ratio: 2}, own: two, native: one, want: met},
		{name: "above the ratio is missed", bound: bound{Ratio: 1.9}, own: two, native: one, want: missed},
		{name: "above the ratio and no slower than overlayfs is met", bound: bound{Ratio: 1.5, OrOverlay: true}, own: two, native: one, overlay: two, want: met},
		{name: "above the ratio and slower than overlayfs is missed", bound: bound{Ratio: 1.5, OrOverlay: true}, own: two, native: one, overlay: one, want: missed},
		{name: "without overlayfs the ratio decides", bound: bound{Ratio: 1.5, OrOverlay: true}, own: one, native: one, want: met},
		{name: "slower than overlayfs is missed", bound: bound{Overlay: true}, own: two, native: one, overlay: one, want: missed},
		{name: "without overlayfs its bound is not measured", bound: bound{Overlay: true}, own: two, native: one, want: notMeasured},
		{name: "at most that much is met", bound: bound{Most: 2}, own: two, want: met},
		{name: "more than that is missed", bound: bound{Most: 1}, own: two, want: missed},
		{name: "at most so much more than native is met", bound: bound{More: 1}, own: two, native: one, want: met},
		{name: "even more than native is missed", bound: bound{More: 0.5}, own: two, native: one, want: missed},
		{name: "without native it is not measured", bound: bound{More: 1}, own: two, want: notMeasured},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.bound.Judge(tt.own, tt.native, tt.overlay); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
