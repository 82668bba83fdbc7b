package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/bench/host"
)

// result is a whole run, ready to print.
type result struct {
	Machine machine
	Rounds  int
	Took    time.Duration
	Places  []string
	Rows    []measured
	Notes   []string
}

type machine struct {
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Dir        string `json:"dir"`
	CPUs       int    `json:"cpus"`
	Root       bool   `json:"root"`
	// Load is the load average of the minute before the first round.
	Load float64 `json:"load"`
}

func newMachine(d *disk) machine {
	return machine{
		Kernel: host.KernelRelease(), FileSystem: d.FileSystem(), Dir: d.Below,
		CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0, Load: host.LoadAverage(),
	}
}

// busy is whether others kept the machine's processors from us.
func (m machine) busy() bool { return m.Load > float64(m.CPUs) }

func newResult(r *runner, m machine, took time.Duration) result {
	res := result{Machine: m, Rounds: r.rounds, Took: took, Rows: r.results, Notes: r.notes}
	for _, p := range r.places {
		res.Places = append(res.Places, p.Name())
	}
	for i, m := range res.Rows {
		j := slices.IndexFunc(res.Rows, func(other measured) bool { return other.ID == m.Bound.Of })
		if j >= 0 {
			res.Rows[i].reference = res.Rows[j].Samples[agentfenseName]
		}
	}
	slices.SortStableFunc(res.Rows, func(a, b measured) int {
		return slices.Index(groupOrder, a.Group) - slices.Index(groupOrder, b.Group)
	})
	return res
}

// verdict judges the row's bound.
func (m measured) verdict() verdict {
	native := m.Samples[nativeName]
	if m.Bound.Of != "" {
		native = m.reference
	}
	return m.Bound.Judge(m.Samples[agentfenseName], native, m.Samples[overlayName])
}

// unit is what the numbers of a row are.
type unit int

const (
	nanoseconds unit = iota
	memoryBytes
)

func (u unit) String() string {
	if u == memoryBytes {
		return "bytes"
	}
	return "ns"
}

// Format shows three digits with a unit.
func (u unit) Format(v float64) string {
	switch {
	case u == memoryBytes:
		return digits(v/(1<<20)) + " MiB"
	case v < 0:
		return "-" + u.Format(-v)
	case v >= 1e9:
		return digits(v/1e9) + " s"
	case v >= 1e6:
		return digits(v/1e6) + " ms"
	}
	return digits(v/1e3) + " µs"
}

// FormatRange shows two values with the unit of the greater.
func (u unit) FormatRange(low, high float64) string {
	number, name, _ := strings.Cut(u.Format(high), " ")
	scale := map[string]float64{"MiB": 1 << 20, "s": 1e9, "ms": 1e6, "µs": 1e3}[name]
	return digits(low/scale) + "–" + number + " " + name
}

func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// jsonResult is the form of --json. Numbers are nanoseconds or bytes, as unit
// says.
type jsonResult struct {
	SchemaVersion int       `json:"schema_version"`
	Machine       machine   `json:"machine"`
	Rounds        int       `json:"rounds"`
	Seconds       float64   `json:"seconds"`
	Places        []string  `json:"places"`
	Rows          []jsonRow `json:"rows"`
	Notes         []string  `json:"notes"`
}

type jsonRow struct {
	ID      string              `json:"id"`
	Group   string              `json:"group"`
	Title   string              `json:"title"`
	Unit    string              `json:"unit"`
	Bound   string              `json:"bound,omitempty"`
	Verdict verdict             `json:"verdict,omitempty"`
	Cells   map[string]jsonCell `json:"cells"`
}

type jsonCell struct {
	Median  float64   `json:"median"`
	Min     float64   `json:"min"`
	Max     float64   `json:"max"`
	Ratio   float64   `json:"ratio_to_native,omitempty"`
	Samples []float64 `json:"samples"`
}

func writeJSON(path string, res result) error {
	out := jsonResult{
		SchemaVersion: 1, Machine: res.Machine, Rounds: res.Rounds, Seconds: res.Took.Seconds(),
		Places: res.Places, Rows: []jsonRow{}, Notes: append([]string{}, res.Notes...),
	}
	for _, m := range res.Rows {
		out.Rows = append(out.Rows, newJSONRow(m))
	}
	data, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func newJSONRow(m measured) jsonRow {
	row := jsonRow{
		ID: m.ID, Group: m.Group, Title: m.Title, Unit: m.Unit.String(),
		Bound: m.Bound.Text(m.Unit), Verdict: m.verdict(), Cells: map[string]jsonCell{},
	}
	for place, s := range m.Samples {
		if sum := s.Summary(); sum.Count > 0 {
			row.Cells[place] = jsonCell{
				Median: sum.Median, Min: sum.Min, Max: sum.Max,
				Ratio: s.RatioTo(m.Samples[nativeName]), Samples: s.present(),
			}
		}
	}
	return row
}

// heading says where and how the numbers were taken.
func (res result) heading() string {
	who := "ordinary user"
	if res.Machine.Root {
		who = "root"
	}
	return strings.Join([]string{
		"Linux " + res.Machine.Kernel, "native is " + res.Machine.FileSystem + " at " + res.Machine.Dir,
		plural(res.Machine.CPUs, "CPU"), who, plural(res.Rounds, "round"), res.Took.Round(time.Second).String(),
	}, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
