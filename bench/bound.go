package main

import "fmt"

// A bound is the required result of agentfense in a row. The zero value requires nothing.
type bound struct {
	Ratio     float64 // at most so many times native, or what Of says
	Of        string  // the row that Ratio or More refers to, of agentfense's own
	OrOverlay bool    // or no slower than the kernel's overlayfs
	Overlay   bool    // no slower than the kernel's overlayfs
	Most      float64 // at most so much: nanoseconds or bytes
	More      float64 // at most so much more than native, or than what Of says
}

// verdict says whether a bound was met.
type verdict string

const (
	notAsked    verdict = ""
	notMeasured verdict = "not measured"
	met         verdict = "yes"
	missed      verdict = "NO"
)

func (b bound) Text(u unit) string {
	switch {
	case b.Of != "" && b.More > 0:
		return "≤ " + b.Of + " + " + u.Format(b.More)
	case b.Of != "":
		return fmt.Sprintf("≤ %.3g× %s", b.Ratio, b.Of)
	case b.Overlay:
		return "≤ overlayfs"
	case b.OrOverlay:
		return fmt.Sprintf("≤ %.3g× or overlayfs", b.Ratio)
	case b.Ratio > 0:
		return fmt.Sprintf("≤ %.3g×", b.Ratio)
	case b.Most > 0:
		return "≤ " + u.Format(b.Most)
	case b.More > 0:
		return "≤ native + " + u.Format(b.More)
	}
	return ""
}

// Judge compares the medians of paired runs, unrounded: a bound missed by a
// hair is missed. Of a bound with Of, native is what agentfense took in that row.
func (b bound) Judge(own, native, overlay samples) verdict {
	ratio, toOverlay := own.RatioTo(native), own.RatioTo(overlay)
	switch {
	case b == bound{}:
		return notAsked
	case own.Summary().Count == 0:
		return notMeasured
	case b.Most > 0:
		return verdictOf(own.Summary().Median <= b.Most)
	case b.Overlay && toOverlay == 0, (b.Ratio > 0 || b.More > 0) && ratio == 0:
		return notMeasured
	case b.More > 0:
		return verdictOf(own.Above(native) <= b.More)
	case b.Overlay:
		return verdictOf(toOverlay <= 1)
	case b.OrOverlay && toOverlay > 0 && toOverlay <= 1:
		return met
	}
	return verdictOf(ratio <= b.Ratio)
}

func verdictOf(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}
