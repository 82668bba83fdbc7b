package transactions_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agentfense/agentfense/internal/sandbox/conflict"
)

// counts says how often what is rare has happened.
type counts map[string]int

// rare is what a run of enough checks must have done.
var rare = []string{
	"lines: ours", "lines: theirs", "lines: markers", "whole: ours", "whole: theirs", "ours: stays", "source: linked", "apply: to a linked file",
	"inside: linked", "inside: wrote to a linked file", "inside: permission denied", "inside: no such file or directory",
	"fork: none", "fork: view", "fork: read", "merge: not permitted",
	"lock: refused", "lock: unlock", "lock: stop", "lock: kill", "lock: remove",
	"hunks: killed before the commit", "hunks: killed after the commit", "merge: killed before", "merge: killed when done", "mount: apply", "mount: reversal",
	"undo: killed while giving back",
}

// count counts what was done in the mount.
func (w *world) count(what string) {
	if w.mount != "" {
		w.did["mount: "+what]++
	}
}

// enough is how many checks do everything rare, whatever the seed.
const enough = 400

// check logs the counts, and fails if something has never happened.
func (c counts) check(t *testing.T, checks int) {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(c)) {
		list = append(list, fmt.Sprintf("%s %d", what, c[what]))
	}
	t.Logf("%d checks did: %s", checks, strings.Join(list, ", "))
	for _, what := range rare {
		if c[what] == 0 && checks >= enough && !t.Failed() {
			t.Errorf("%d checks have never done: %s", checks, what)
		}
	}
}

// resolved counts what an apply with these steps has resolved.
func (c counts) resolved(b *box, src tree, steps map[string]change, r resolution) {
	if r.how == conflict.Merge || len(inConflict(steps)) > 0 {
		return
	}
	name := map[conflict.Resolution]string{conflict.Ours: "ours", conflict.Theirs: "theirs", conflict.Markers: "markers"}[r.how]
	for p, s := range steps {
		if s.status != 'M' || s.outcome != applies && s.outcome != stays || b.isFresh(src, p) {
			continue
		}
		base, ours, theirs := b.base[p], src[p], b.own[p].node
		if _, how := r.merge(base, ours, theirs); how != resolved {
			continue
		}
		base.mode, ours.mode, theirs.mode = 0, 0, 0
		switch _, how := asks.merge(base, ours, theirs); {
		case how == clean:
			c["mode: "+name]++
		case base.isText() && ours.isText() && theirs.isText() && base.byHash:
			c["lines: "+name]++
		default:
			c["whole: "+name]++
		}
		if s.outcome == stays {
			c["ours: stays"]++
		}
	}
}
