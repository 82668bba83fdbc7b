package learn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/policy"
	"github.com/agentfense/agentfense/internal/view/uses"
)

const (
	maxExamples = 3
	maxPrograms = 4
)

// evidence says on one line what a rule was learned from.
func (i *item) evidence() string {
	var parts []string
	for _, w := range []struct {
		word string
		is   func(uses.Kind) bool
	}{
		{"created", func(k uses.Kind) bool { return k&uses.Created != 0 && k&uses.Removed == 0 }},
		{"created and removed", func(k uses.Kind) bool { return k&uses.Created != 0 && k&uses.Removed != 0 }},
		{"removed", func(k uses.Kind) bool { return k&(uses.Created|uses.Removed) == uses.Removed }},
		{"written", func(k uses.Kind) bool { return k&uses.Changes == uses.Written }},
		{"moved", func(k uses.Kind) bool { return k&uses.Changes == uses.Tree }},
		{"executed", func(k uses.Kind) bool { return k&(uses.Changes|uses.Executed) == uses.Executed }},
		{"read", func(k uses.Kind) bool { return k&(uses.Changes|uses.Executed|uses.Read) == uses.Read }},
		{"listed", func(k uses.Kind) bool { return k&(uses.Changes|uses.Executed|uses.Read|uses.Listed) == uses.Listed }},
		{"looked up", func(k uses.Kind) bool { return k == uses.Found }},
	} {
		count := 0
		for _, n := range i.uses {
			if w.is(n.use.Kind) {
				count++
			}
		}
		switch {
		case count > 0 && i.shape == exact:
			parts = append(parts, w.word)
		case count > 0:
			parts = append(parts, fmt.Sprintf("%d %s", count, w.word))
		}
	}
	text := strings.Join(parts, ", ")
	if i.shape != exact {
		text += i.examples()
	}
	if programs := i.programs(); len(programs) > 0 {
		text += " by " + strings.Join(programs, ", ")
	}
	if n := i.raised(); n > 0 {
		text += fmt.Sprintf("; permits to write %d that were not written", n)
	}
	if i.unused > 0 {
		text += fmt.Sprintf("; permits %d more that were not used", i.unused)
	}
	return text
}

// raised counts the paths of a rule that permits to write and that were not written. What is below
// a directory that the command made does not count.
func (i *item) raised() (n int) {
	for _, u := range i.uses {
		if i.permission == policy.Write && u.asked < policy.Write && !u.born {
			n++
		}
	}
	return n
}

// examples names some of the files, below the directory of the rule.
func (i *item) examples() string {
	all := slices.DeleteFunc(slices.Clone(i.uses), func(n *node) bool { return n.dir && len(n.children) > 0 })
	slices.SortFunc(all, func(a, b *node) int { return strings.Compare(string(a.path), string(b.path)) })
	var names []string
	for k := range min(len(all), maxExamples) {
		n := all[k*max(1, len(all)/maxExamples)]
		names = append(names, vpath.Escape(strings.TrimPrefix(strings.TrimPrefix(string(n.path), string(i.dir)), "/")))
	}
	if len(names) == 0 {
		return ""
	}
	return ", such as " + strings.Join(names, ", ")
}

// programs names the programs that used the paths, those that used most first.
func (i *item) programs() []string {
	counts := map[string]int{}
	for _, n := range i.uses {
		for _, p := range n.use.Programs {
			counts[p]++
		}
	}
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	if len(names) > maxPrograms {
		names = append(names[:maxPrograms], "…")
	}
	for k, name := range names {
		names[k] = vpath.Escape(name)
	}
	return names
}

// note adds what is to be known of the whole.
func (l *learner) note() {
	if l.in.Omitted > 0 {
		l.out.Notes = append(l.out.Notes, fmt.Sprintf("%d uses were too many to record: this policy may be too narrow", l.in.Omitted))
	}
	if n := l.countGrants(); n > MaxRules {
		l.out.Notes = append(l.out.Notes, fmt.Sprintf("%d rules: the paths have too little in common for fewer", n))
	}
}

func (l *learner) countGrants() (n int) {
	for _, r := range l.out.Rules {
		if r.Permission > policy.None {
			n++
		}
	}
	return n
}
