package transactions_test

import (
	"context"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/sandbox/merge"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// mergeForks makes two forks of a sandbox, edits files in both, merges one into the other, takes
// that back, and removes them.
func (w *world) mergeForks(rt *rapid.T) {
	of, sb := w.anyBox(rt)
	of.freeze()
	ours, theirs := of.fork(w.newName(), ""), of.fork(w.newName(), "")
	for _, b := range []*box{ours, theirs} {
		o := snapshot.ForkOptions{Names: []string{b.name}, Freeze: snapshot.FreezeStopped(sb)}
		narrow := w.maybeNarrow(rt, of, &o)
		_, err := snapshot.Fork(sb, o)
		w.must(rt, err)
		narrow(b)
	}
	base := of.view(w.src)
	for _, b := range []*box{ours, theirs} {
		w.editFiles(rt, b)
	}
	before := ours.view(w.src)
	want, stops := mergeViews(base, before, theirs.view(w.src))
	stops = w.notPermitted(ours, theirs, want, stops)
	into, from := w.open(rt, ours), w.open(rt, theirs)
	if len(stops) == 0 && rapid.IntRange(0, 2).Draw(rt, "killed") == 0 {
		w.killedMerge(rt, into, from, before, want)
	}
	r, err := merge.Merge(context.Background(), merge.Options{Into: into, From: from, Freeze: snapshot.FreezeStopped(from)})
	w.must(rt, err)
	var got []string
	for _, c := range r.Conflicts {
		got = append(got, c.Path.Rel())
	}
	slices.Sort(got)
	if !slices.Equal(got, stops) {
		rt.Fatalf("the merge of %s into %s is in conflict at %q, want %q", theirs.name, ours.name, got, stops)
	}
	if len(stops) > 0 {
		want = before
	}
	w.same(rt, "what was merged into", want, w.shown(rt, into, into.LayersDir()))
	w.same(rt, "what was merged", theirs.view(w.src), w.shown(rt, from, from.LayersDir()))
	list, err := snapshot.Read(into)
	w.must(rt, err)
	if n := len(list.Snapshots); n > 0 { // also of a merge that was killed when it was done
		_, err := snapshot.Restore(into, list.Snapshots[n-1].Ref(), false)
		w.must(rt, err)
		w.same(rt, "what was before the merge", before, w.shown(rt, into, into.LayersDir()))
	}
	w.must(rt, w.home.Remove(ours.name))
	w.must(rt, w.home.Remove(theirs.name))
}

// killedMerge kills a merge: either all of it is done, or nothing.
func (w *world) killedMerge(rt *rapid.T, into, from *record.Sandbox, before, after tree) {
	point := pick(rt, whileMerge)
	want := before
	switch killed := w.killed(rt, point, "merge", from.Name(), "--into", into.Name()); {
	case !killed:
		want = after
	case point == mergePut:
		want = after
		w.did["merge: killed when done"]++
	default:
		w.did["merge: killed before"]++
	}
	w.same(rt, "what a killed merge has left", want, w.shown(rt, into, into.LayersDir()))
}

// notPermitted adds the paths that the policy of one of the sandboxes does not let a merge change.
func (w *world) notPermitted(ours, theirs *box, merged tree, stops []string) []string {
	before := ours.view(w.src)
	all := maps.Clone(merged)
	maps.Copy(all, before)
	for p := range all {
		if (ours.permission(p) < policy.Write || theirs.permission(p) < policy.Write) && !isEqual(before.has(p), merged.has(p)) {
			stops = append(stops, p)
			w.did["merge: not permitted"]++
		}
	}
	slices.Sort(stops)
	return slices.Compact(stops)
}

// editFiles changes, makes and removes files in a sandbox.
func (w *world) editFiles(rt *rapid.T, b *box) {
	draw := func() (edit, bool) {
		e, ok := w.drawEdit(rt, b.view(w.src))
		now, there := b.at(w.src, e.path)
		return e, ok && e.what != "rename" && !e.node.isDir() && (!there || now.isFile())
	}
	if len(b.narrow) > 0 {
		w.editThrough(rt, b, draw)
		return
	}
	w.inside(rt, w.open(rt, b), func(s *layer.Stack) {
		for range rapid.IntRange(1, 4).Draw(rt, "edits") {
			if e, ok := draw(); ok {
				w.must(rt, w.do(b, s, e))
			}
		}
	})
}

// mergeViews merges what two sandboxes show that began with base. stops are the paths in conflict.
func mergeViews(base, ours, theirs tree) (merged tree, stops []string) {
	merged = maps.Clone(ours)
	all := maps.Clone(theirs)
	maps.Copy(all, ours)
	for _, p := range slices.Sorted(maps.Keys(all)) {
		b, o, t := base.has(p), ours.has(p), theirs.has(p)
		switch {
		case isEqual(o, t) || isEqual(t, b):
		case isEqual(o, b):
			merged.set(p, t)
		case b == nil || o == nil || t == nil || !b.isFile() || !o.isFile() || !t.isFile():
			stops = append(stops, p)
		default:
			if n, how := asks.merge(withContent(*b), *o, *t); how == clean {
				merged.set(p, &n)
			} else {
				stops = append(stops, p)
			}
		}
	}
	return merged, stops
}

func isEqual(a, b *node) bool {
	return a == nil && b == nil || a != nil && b != nil && isSame(*a, *b)
}
