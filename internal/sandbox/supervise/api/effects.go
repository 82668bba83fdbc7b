package supervise

import (
	"cmp"
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/fusefs"
	"github.com/agentfense/agentfense/internal/policy"
	"github.com/agentfense/agentfense/internal/vpath"
)

// Effects are what the policy refused a command, and what it changed in the
// view, from its start to its end: it and all its descendants. What they do
// after its end is only in the audit log, as is what cannot be told whose it is:
// writing through a mapping while several commands run.
type Effects struct {
	Denied []Denied `json:"denied,omitempty"`
	// DeniedCount is how many refusals there were, repeats included.
	DeniedCount int64     `json:"denied_count,omitempty"`
	Changed     []Changed `json:"changed,omitempty"` // by path
	// ChangedCount is how many changes there were.
	ChangedCount int64 `json:"changed_count,omitempty"`
}

// Denied is what the policy refused, as often as Count says. Its texts are
// encoded (vpath.EncodeText).
type Denied struct {
	Path       string            `json:"path"`
	Operation  string            `json:"operation"`
	Permission policy.Permission `json:"permission"` // what the path has
	Rule       string            `json:"rule,omitempty"`
	RuleIndex  int               `json:"rule_index"` // policy.NoRule: none decided
	PID        int               `json:"pid,omitempty"`
	Program    string            `json:"program,omitempty"`
	Count      int64             `json:"count"`
}

// ChangeKind says what became of a path.
type ChangeKind = fusefs.ChangeKind

// The kinds of changes.
const (
	Created  = fusefs.Created
	Modified = fusefs.Modified
	Deleted  = fusefs.Deleted
	Renamed  = fusefs.Renamed
)

// Changed is one change, net. Its paths are encoded (vpath.EncodeText).
type Changed struct {
	Path string     `json:"path"`
	Kind ChangeKind `json:"kind"`
	From string     `json:"from,omitempty"` // of a renamed one
}

// What Effects list at most: entries of each list, and bytes of their texts.
const (
	maxEffects     = 1000
	maxEffectBytes = 256 << 10
)

// denialSet collects what one command was refused.
type denialSet struct {
	mu    sync.Mutex
	at    map[Denied]int // by all but the count
	list  []Denied
	bytes int
	count int64
}

// note adds a refusal, or several alike.
func (s *denialSet) note(d fusefs.Denial, rule string) {
	key := Denied{
		Path: d.Path.Text(), Operation: d.Operation, Permission: d.Permission,
		Rule: vpath.EncodeText(rule), RuleIndex: d.Rule, PID: d.PID, Program: vpath.EncodeText(d.Program),
	}
	if rule == "" { // the decision is none of the sandbox's rules
		key.RuleIndex = policy.NoRule
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += int64(d.Count)
	i, known := s.at[key]
	if !known {
		s.bytes += len(key.Path) + len(key.Rule)
		if len(s.list) >= maxEffects || s.bytes > maxEffectBytes {
			return
		}
		if s.at == nil {
			s.at = map[Denied]int{}
		}
		i = len(s.list)
		s.at[key], s.list = i, append(s.list, key)
	}
	s.list[i].Count += int64(d.Count)
}

// effectsOf returns what a command was refused and did.
func effectsOf(denials *denialSet, c changes) Effects {
	denials.mu.Lock()
	defer denials.mu.Unlock()
	e := Effects{Denied: slices.Clone(denials.list), DeniedCount: denials.count}
	e.Changed, e.ChangedCount = c.list()
	return e
}

// list returns the changes by path, as many as Effects take, and their number.
func (c changes) list() (list []Changed, count int64) {
	type entry struct {
		path, from vpath.Path
		kind       ChangeKind
	}
	var all []entry
	for kind, paths := range map[ChangeKind][]vpath.Path{
		Created: c.Created, Modified: c.Modified, Deleted: c.Deleted,
	} {
		for _, p := range paths {
			all = append(all, entry{path: p, kind: kind})
		}
	}
	for _, r := range c.Renamed {
		all = append(all, entry{r.To, r.From, Renamed})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	bytes := 0
	for _, e := range all[:min(len(all), maxEffects)] {
		changed := Changed{Path: e.path.Text(), Kind: e.kind}
		if e.kind == Renamed {
			changed.From = e.from.Text()
		}
		if bytes += len(changed.Path) + len(changed.From); bytes > maxEffectBytes {
			break
		}
		list = append(list, changed)
	}
	return list, int64(len(all) + c.Omitted)
}
