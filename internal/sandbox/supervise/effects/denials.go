package effects

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/supervise/api"
	"github.com/agentfense/agentfense/internal/view/fusefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// DenialSet collects what one command was refused.
type DenialSet struct {
	mu    sync.Mutex
	at    map[api.Denied]int // by all but the count
	list  []api.Denied
	bytes int
	count int64
}

// Note adds a refusal, or several alike, in the mount of that name, "" for the workspace.
func (s *DenialSet) Note(d fusefs.Denial, mount, rule string) {
	key := api.Denied{
		Mount: mount,
		Path:  d.Path.Text(), Operation: d.Operation, Permission: d.Permission,
		Rule: vpath.EncodeText(rule), RuleIndex: d.Rule, PID: d.PID, Program: vpath.EncodeText(d.Program),
	}
	if d.Locked {
		key.Lock = vpath.EncodeText(d.Reason)
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
		if len(s.list) >= api.MaxEffects || s.bytes > api.MaxEffectBytes {
			return
		}
		if s.at == nil {
			s.at = map[api.Denied]int{}
		}
		i = len(s.list)
		s.at[key], s.list = i, append(s.list, key)
	}
	s.list[i].Count += int64(d.Count)
}

// Of returns what a command was refused and did, by the names of mounts; "" is the workspace.
func Of(denials *DenialSet, changed map[string]Changes) api.Effects {
	denials.mu.Lock()
	defer denials.mu.Unlock()
	e := api.Effects{Denied: slices.Clone(denials.list), DeniedCount: denials.count}
	room := api.MaxEffectBytes
	for _, mount := range slices.Sorted(maps.Keys(changed)) {
		list, count := changed[mount].list(mount, api.MaxEffects-len(e.Changed), &room)
		e.Changed = append(e.Changed, list...)
		e.ChangedCount += count
	}
	return e
}

// list returns the changes by path, at most as many as given, with texts for which there is room,
// and their number.
func (c Changes) list(mount string, most int, room *int) (list []api.Changed, count int64) {
	type entry struct {
		path, from vpath.Path
		kind       api.ChangeKind
	}
	var all []entry
	for kind, paths := range map[api.ChangeKind][]vpath.Path{
		api.Created: c.Created, api.Modified: c.Modified, api.Deleted: c.Deleted,
	} {
		for _, p := range paths {
			all = append(all, entry{path: p, kind: kind})
		}
	}
	for _, r := range c.Renamed {
		all = append(all, entry{r.To, r.From, api.Renamed})
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	for _, e := range all[:min(len(all), most)] {
		changed := api.Changed{Mount: mount, Path: e.path.Text(), Kind: e.kind}
		if e.kind == api.Renamed {
			changed.From = e.from.Text()
		}
		if *room -= len(changed.Path) + len(changed.From); *room < 0 {
			break
		}
		list = append(list, changed)
	}
	return list, int64(len(all) + c.Omitted)
}
