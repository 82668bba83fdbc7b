package transactions_test

import (
	"maps"
	"os"
	"slices"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/snapshot"
	"github.com/agentfense/agentfense/internal/sandbox/undo"
)

const maxBoxes = 4

// snapshot takes a snapshot.
func (w *world) snapshot(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	s, err := snapshot.Take(sb, snapshot.Snapshot{}, snapshot.FreezeStopped(sb))
	w.must(rt, err)
	b.freeze()
	b.note(s.Ref())
}

// anyState draws a snapshot of the sandbox.
func (b *box) anyState(rt *rapid.T) (string, bool) {
	refs := slices.Sorted(maps.Keys(b.states))
	if len(refs) == 0 {
		return "", false
	}
	return rapid.SampledFrom(refs).Draw(rt, "snapshot"), true
}

func (w *world) restore(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	ref, ok := b.anyState(rt)
	if !ok {
		return
	}
	r, err := snapshot.Restore(sb, ref, false)
	w.must(rt, err)
	b.restored(ref, r.Kept)
}

// restored is the effect of a restore that has kept what there was as a snapshot.
func (b *box) restored(ref string, kept snapshot.Snapshot) {
	if kept.Number != 0 {
		b.freeze()
		b.note(kept.Ref())
	}
	for _, part := range b.parts() {
		part.delta = part.states[ref].clone()
	}
}

func (w *world) fork(rt *rapid.T) {
	if len(w.boxes) >= maxBoxes {
		return
	}
	b, sb := w.anyBox(rt)
	o := snapshot.ForkOptions{Names: []string{w.newName()}, Freeze: snapshot.FreezeStopped(sb)}
	if ref, ok := b.anyState(rt); ok && rapid.Bool().Draw(rt, "of a snapshot") {
		o.Snapshot = ref
	} else {
		b.freeze()
	}
	narrow := w.maybeNarrow(rt, b, &o)
	_, err := snapshot.Fork(sb, o)
	w.must(rt, err)
	fork := b.fork(o.Names[0], o.Snapshot)
	narrow(fork)
	w.add(fork)
}

// remove removes a sandbox, but not the last one. What it applied can still be undone.
func (w *world) remove(rt *rapid.T) {
	if len(w.boxes) == 1 {
		return
	}
	b, _ := w.anyBox(rt)
	w.must(rt, w.home.Remove(b.name))
	delete(w.boxes, b.name)
	delete(w.data.boxes, b.name)
}

// drawPaths draws some of the changed paths, or none: all.
func drawPaths(rt *rapid.T, all map[string]change) []string {
	if len(all) == 0 || rapid.Bool().Draw(rt, "all") {
		return nil
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(parentsFirst(all)), 1, 2, rapid.ID).Draw(rt, "paths")
}

func pathsOf(list []string) []vpath.Path {
	var paths []vpath.Path
	for _, p := range list {
		paths = append(paths, pathOf(p))
	}
	return paths
}

// apply applies the changes of a sandbox, or some.
func (w *world) apply(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	w.applyPaths(rt, b, sb, drawPaths(rt, b.changes(w.src)), drawResolution(rt, b))
}

func (w *world) applyPaths(rt *rapid.T, b *box, sb *record.Sandbox, paths []string, how resolution) {
	steps := b.plan(w.src, paths, how)
	r, err := apply.Changes(rt.Context(), sb, apply.Options{Paths: pathsOf(paths), OnConflict: how.how})
	w.wantOutcomes(rt, steps, r, err)
	w.did.resolved(b, w.src, steps, how)
	if len(inConflict(steps)) == 0 {
		w.applied(rt, b, b.applyTo(w.src, steps, len(paths) == 0, how), r.Transaction)
	}
}

// wantOutcomes fails unless an apply ended as planned.
func (w *world) wantOutcomes(rt *rapid.T, steps map[string]change, r apply.Result, err error) {
	got, want := map[string]string{}, map[string]string{}
	for _, p := range r.Paths {
		got[p.Path.Rel()] = string(p.Outcome)
	}
	stopped := len(inConflict(steps)) > 0
	for p, c := range steps {
		switch {
		case c.outcome == unchanged:
		case c.outcome == stays, c.outcome == applies && stopped:
			want[p] = string(apply.Skipped)
		default:
			want[p] = string(map[outcome]apply.Outcome{applies: apply.Applied, isPresent: apply.Present, isKept: apply.Kept, conflicts: apply.Conflict, refused: apply.Refused}[c.outcome])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		rt.Fatalf("the outcomes of the apply (-want +got), %v:\n%s", err, diff)
	}
	if stopped != errdefs.Is(err, errdefs.Precondition) || !stopped && err != nil {
		rt.Fatalf("apply: %v, want a refusal: %v", err, stopped)
	}
}

// applied notes a transaction, if the apply has changed something.
func (w *world) applied(rt *rapid.T, b *box, done map[string]move, id string) {
	if (id == "") != (len(done) == 0) {
		rt.Fatalf("the apply is transaction %q, and does %v", id, done)
	}
	w.identify(rt)
	for p, m := range done {
		if m.before != nil && m.before.isFile() && w.wasLinked(p, m.before) {
			w.did["apply: to a linked file"]++
		}
	}
	if id != "" {
		w.count("apply")
		w.done = append(w.done, &transaction{id: id, box: b.name, done: done})
	}
}

// wasLinked reports whether what was at p had another name, too, which has stayed.
func (w *world) wasLinked(p string, before *node) bool {
	for q, n := range w.src {
		if q != p && n.isFile() && n.inode == before.inode {
			return true
		}
	}
	return false
}

// reverse undoes a transaction that has an effect, or takes an undo back; mostly the last one.
func (w *world) reverse(rt *rapid.T) {
	var all []*transaction
	for _, t := range w.done {
		if t.by == "" {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return
	}
	t := all[len(all)-1]
	if rapid.IntRange(0, 3).Draw(rt, "another") == 0 {
		t = rapid.SampledFrom(all).Draw(rt, "transaction")
	}
	w.reverseOne(rt, t)
}

func (w *world) history(rt *rapid.T) (*history.Source, []history.Entry) {
	source, err := w.home.ResolveSource(w.dir)
	w.must(rt, err)
	h := history.Open(w.home, source)
	entries, err := h.Entries()
	w.must(rt, err)
	return h, entries
}

func (w *world) reverseOne(rt *rapid.T, t *transaction) {
	h, entries := w.history(rt)
	e, err := undo.Named(entries, t.undoes, t.id)
	w.must(rt, err)
	var sb *record.Sandbox
	b := w.boxes[t.box]
	if b != nil {
		sb = w.open(rt, b)
	}
	refused := t.refused(w.src)
	r, err := undo.Reverse(rt.Context(), h, e, sb, undo.Options{})
	var why []string
	for _, p := range r.Paths {
		if p.Conflict != "" {
			why = append(why, p.Path.Rel())
		}
	}
	slices.Sort(why)
	slices.Sort(refused)
	if !slices.Equal(why, refused) || (len(refused) > 0) != errdefs.Is(err, errdefs.Precondition) || len(refused) == 0 && err != nil {
		rt.Fatalf("%s of %v: %v, conflicts %q, want %q", r.Kind, t, err, why, refused)
	}
	if len(refused) > 0 {
		return
	}
	w.reversed(rt, t, r.ID, b, true)
}

// reversed is the effect of a reversal, in the source and, if it came to that, in the sandbox.
func (w *world) reversed(rt *rapid.T, t *transaction, id string, b *box, inDelta bool) {
	done := t.reverse(w.src)
	w.identify(rt)
	t.by = id
	w.count("reversal")
	w.done = append(w.done, &transaction{id: id, box: t.box, undoes: !t.undoes, done: done})
	switch {
	case b == nil || !inDelta:
	case t.undoes:
		b.takeOut(w.src, done)
	default:
		b.giveBack(w.src, done, false)
	}
}

// removeDir removes the directory of a world.
func removeDir(dir string) { _ = os.RemoveAll(dir) }
