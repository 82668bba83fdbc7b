package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentfense/agentfense/bench/host"
)

// figure is one number and what is asked of it.
type figure struct {
	Name  string  `json:"name"`
	Unit  unit    `json:"unit"`
	Value float64 `json:"value"`
	// Most is the bound; 0 asks nothing.
	Most float64 `json:"most,omitempty"`
	// Exact asks for exactly Most, also for 0.
	Exact bool `json:"exact,omitempty"`
}

type unit string

const (
	nanoseconds unit = "ns"
	memoryBytes unit = "bytes"
	count       unit = ""
	perSecond   unit = "1/s"
	bytesPerS   unit = "bytes/s"
	times       unit = "ratio"
)

func (f figure) asked() string {
	switch {
	case f.Exact:
		return f.Unit.format(f.Most)
	case f.Most > 0:
		return "≤ " + f.Unit.format(f.Most)
	}
	return ""
}

func (f figure) met() string {
	switch {
	case !f.Exact && f.Most == 0:
		return ""
	case f.Exact && f.Value == f.Most, !f.Exact && f.Value <= f.Most:
		return "yes"
	}
	return "NO"
}

func (u unit) format(v float64) string {
	switch u {
	case nanoseconds:
		return fmt.Sprintf("%.2f ms", v/1e6)
	case memoryBytes:
		return fmt.Sprintf("%.1f MiB", v/(1<<20))
	case bytesPerS:
		return fmt.Sprintf("%.0f MB/s", v/1e6)
	case perSecond:
		return fmt.Sprintf("%.1f /s", v)
	case times:
		return fmt.Sprintf("%.2f×", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// durations are what calls took.
type durations []time.Duration

// at is the quantile q, 0 to 1; 0 when there is none.
func (d durations) at(q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(d))
	return float64(s[min(len(s)-1, int(q*float64(len(s))))])
}

// less is what each was more than that of base at its place.
func (d durations) less(base durations) durations {
	more := make(durations, len(d))
	for i := range d {
		more[i] = d[i] - base[i]
	}
	return more
}

// figures are the quantiles, with a bound on the median.
func (d durations) figures(name string, most time.Duration) []figure {
	return []figure{
		{Name: name + ", median", Unit: nanoseconds, Value: d.at(.5), Most: float64(most)},
		{Name: name + ", p95", Unit: nanoseconds, Value: d.at(.95)},
		{Name: name + ", p99", Unit: nanoseconds, Value: d.at(.99)},
		{Name: name + ", most", Unit: nanoseconds, Value: d.at(1)},
	}
}

// result is a whole run.
type result struct {
	SchemaVersion int      `json:"schema_version"`
	Kernel        string   `json:"kernel"`
	CPUs          int      `json:"cpus"`
	Root          bool     `json:"root"`
	Load          float64  `json:"load"` // average of the minute before
	Rounds        int      `json:"rounds"`
	Rows          []rowSum `json:"rows"`
	Notes         []string `json:"notes"`
	begun         time.Time
}

type rowSum struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Figures []figure `json:"figures"`
}

func newResult(o Options) *result {
	return &result{
		SchemaVersion: 1, Kernel: host.KernelRelease(), CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0,
		Load: host.LoadAverage(), Rounds: o.Rounds, Rows: []rowSum{}, Notes: []string{}, begun: time.Now(),
	}
}

// add notes the figures of a row, and why there are none.
func (r *result) add(of row, figures []figure, err error) {
	if len(figures) > 0 {
		r.Rows = append(r.Rows, rowSum{ID: of.ID, Title: of.Title, Figures: figures})
	}
	if err == nil {
		return
	}
	if here := errNotHere(""); errors.As(err, &here) {
		r.Notes = append(r.Notes, of.ID+": not measured: "+string(here))
		return
	}
	r.Notes = append(r.Notes, of.ID+": failed: "+err.Error())
}

func (r *result) writeJSON(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// Widths of the table's columns, in characters.
const (
	nameWidth  = 58
	valueWidth = 12
	askedWidth = 16
)

func (r *result) write(w io.Writer) error {
	var b strings.Builder
	who := "ordinary user"
	if r.Root {
		who = "root"
	}
	fmt.Fprintf(&b, "Linux %s, %d CPUs, %s, %d rounds, %s\n", r.Kernel, r.CPUs, who, r.Rounds, time.Since(r.begun).Round(time.Second))
	if r.Load > float64(r.CPUs) {
		fmt.Fprintf(&b, "The machine was busy before the first row (load %.1f): the numbers are noisy.\n", r.Load)
	}
	met := map[string]int{}
	for _, sum := range r.Rows {
		fmt.Fprintf(&b, "\n%s: %s\n", sum.ID, sum.Title)
		for _, f := range sum.Figures {
			line := pad("  "+f.Name, nameWidth) + pad(f.Unit.format(f.Value), valueWidth) + pad(f.asked(), askedWidth) + f.met()
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			met[f.met()]++
		}
	}
	fmt.Fprintf(&b, "\nof the bounds asked, %d met, %d missed\n", met["yes"], met["NO"])
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", strings.ReplaceAll(n, "\n", "\n      "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(1, width-utf8.RuneCountInString(s)))
}
