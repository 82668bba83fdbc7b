// Package prove answers questions about all paths at once: where two policies differ, and whether
// what matches a pattern has a permission. The answers are exact for the whole pattern language,
// and each comes with an example, the shortest path.
//
// A policy is an automaton that reads a path name by name (policy.State). The package walks two of
// them together over all states that some path leads to. At each it tries one name of every class
// of names that the patterns tell apart (glob.Classes). Pure.
package prove

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/policy/glob"
)

// maxSteps bounds the paths that a walk looks at, for a few seconds. A thousand ordinary rules need
// a hundredth of it.
const maxSteps = 1 << 21

// visit looks at a path and what both policies decide there.
type visit func(path func() vpath.Path, a, b policy.Decision) verdict

// verdict says how a walk goes on.
type verdict int

const (
	skip  verdict = iota // not below this path
	enter                // below this path too
	stop                 // not at all
)

// pair is a place of the walk: the states of both policies at a directory.
type pair struct {
	a, b   policy.State
	parent int
	name   string
}

type walker struct {
	visit   visit
	over    func(a, b policy.State) bool // nothing below is of interest
	pairs   []pair
	seen    map[string]bool
	literal []string            // every name that some rule spells out
	classes map[string][]sample // by the globs
	steps   int
}

// walk visits the root, then one path of each kind that the policies tell apart, the shortest
// first. Errors: Exhausted.
func walk(a, b *policy.Policy, over func(a, b policy.State) bool, v visit) error {
	w := &walker{visit: v, over: over, seen: map[string]bool{}, classes: map[string][]sample{}}
	w.literal = sorted(append(a.Names(), b.Names()...))
	root := pair{a.At(vpath.Root), b.At(vpath.Root), -1, ""}
	if v(func() vpath.Path { return vpath.Root }, root.a.Decision(), root.b.Decision()) != enter {
		return nil
	}
	w.pairs = append(w.pairs, root)
	for i := 0; i < len(w.pairs); i++ {
		if stopped, err := w.expand(i); stopped || err != nil {
			return err
		}
	}
	return nil
}

// expand visits a child of each class of names in the directory of pair i.
func (w *walker) expand(i int) (stopped bool, err error) {
	p := w.pairs[i]
	names, err := w.names(p)
	if err != nil {
		return false, err
	}
	if w.steps += len(names); w.steps > maxSteps {
		return false, errdefs.New(errdefs.Exhausted, "the policies have too many states to look at each: make the patterns simpler")
	}
	for _, name := range names {
		path := func() vpath.Path { return w.pathOf(p).Child(name) }
		switch w.visit(path, p.a.DecideChild(name), p.b.DecideChild(name)) {
		case stop:
			return true, nil
		case enter:
			w.push(pair{p.a.Child(name), p.b.Child(name), i, name})
		case skip:
		}
	}
	return false, nil
}

// push adds a directory to the walk, unless one with the same future is part of it.
func (w *walker) push(p pair) {
	if w.over(p.a, p.b) {
		return
	}
	if key := joined(p.a.Key(), p.b.Key()); !w.seen[key] {
		w.seen[key] = true
		w.pairs = append(w.pairs, p)
	}
}

func joined(a, b string) string {
	n := len(a)
	return string([]byte{byte(n), byte(n >> 8), byte(n >> 16)}) + a + b
}

// sample are names that match the same globs.
type sample struct {
	free    string   // a name that no rule spells out, "" if there is none
	literal []string // all names that a rule spells out
}

// names returns the names that rules spell out in the directory of the pair, and one other name of
// each class that the globs there tell apart.
func (w *walker) names(p pair) ([]string, error) {
	names, globs := p.a.Branches()
	more, moreGlobs := p.b.Branches()
	names = sorted(append(names, more...))
	samples, err := w.samples(append(globs, moreGlobs...))
	if err != nil {
		return nil, errdefs.New(errdefs.Exhausted, "below %s: %w: make the patterns simpler", w.pathOf(p), err)
	}
	there := names
	for _, s := range samples {
		if s.free != "" {
			names = append(names, s.free)
			continue
		}
		for _, name := range s.literal {
			if _, found := slices.BinarySearch(there, name); !found {
				names = append(names, name)
				break
			}
		}
	}
	return names, nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// samples returns names of each class that the globs tell apart.
func (w *walker) samples(globs []*glob.Glob) ([]sample, error) {
	slices.SortFunc(globs, func(a, b *glob.Glob) int { return strings.Compare(a.Text, b.Text) })
	globs = slices.CompactFunc(globs, func(a, b *glob.Glob) bool { return a.Text == b.Text })
	texts := make([]string, len(globs))
	for i, g := range globs {
		texts[i] = g.Text
	}
	key := strings.Join(texts, "/")
	if samples, ok := w.classes[key]; ok {
		return samples, nil
	}
	classes, err := glob.Classes(globs, w.literal)
	if err != nil {
		return nil, err
	}
	samples := make([]sample, 0, len(classes))
	byMatched := map[string]int{}
	for _, c := range classes {
		byMatched[fmt.Sprint(c.Matched)] = len(samples)
		samples = append(samples, sample{free: c.Example})
	}
	for _, name := range w.literal {
		key := fmt.Sprint(glob.Matching(globs, name))
		i, known := byMatched[key]
		if !known {
			i = len(samples)
			byMatched[key] = i
			samples = append(samples, sample{})
		}
		samples[i].literal = append(samples[i].literal, name)
	}
	w.classes[key] = samples
	return samples, nil
}

func (w *walker) pathOf(p pair) vpath.Path {
	if p.parent < 0 {
		return vpath.Root
	}
	return w.pathOf(w.pairs[p.parent]).Child(p.name)
}
