package transactions_test

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/textdiff"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/review/hunk"
)

// hunks returns the ids of the change of a text, or false if it has no parts.
func (w *world) hunks(rt *rapid.T, sb *record.Sandbox, p string) (hunk.Set, bool) {
	r, err := review.Open(sb)
	w.must(rt, err)
	defer r.Close()
	for _, f := range r.Files() {
		if f.Path != pathOf(p) {
			continue
		}
		c, err := r.Content(&f)
		w.must(rt, err)
		set := hunk.Of(&f, &c)
		return set, set.HasParts()
	}
	return hunk.Set{}, false
}

// applyHunks applies a part of the change of a text.
func (w *world) applyHunks(rt *rapid.T) {
	b, sb := w.anyBox(rt)
	w.changeInside(rt, b, sb)
	texts := b.changes(w.src)
	maps.DeleteFunc(texts, func(p string, c change) bool {
		return c.status != 'M' || !b.mayWrite(p) || !b.own[p].isText() || !b.base[p].isText()
	})
	if len(texts) == 0 {
		return
	}
	p := rapid.SampledFrom(parentsFirst(texts)).Draw(rt, "file")
	set, ok := w.hunks(rt, sb, p)
	if !ok {
		return
	}
	ids, chosen := drawHunks(rt, set)
	withMode := set.Mode != "" && rapid.Bool().Draw(rt, "mode")
	if withMode {
		ids = append(ids, set.Mode)
	}
	if len(ids) == 0 {
		return
	}
	c := b.changes(w.src)[p]
	c.outcome = b.decide(w.src, p, c, nil, asks) // hunks choose this path alone
	steps := map[string]change{p: c}
	text, err := textdiff.Patched([]byte(b.base[p].text), chosen)
	w.must(rt, err)
	whole := string(text) == b.own[p].text && withMode == (set.Mode != "")
	if !whole && !b.isFresh(w.src, p) && !isSame(w.src[p], b.own[p].node) {
		c.outcome = conflicts // of such a file no part is applied, nor merged
		steps[p] = c
	}
	whole = whole || steps[p].outcome != applies
	id, done := "", true
	if steps[p].outcome == applies && rapid.IntRange(0, 2).Draw(rt, "killed") == 0 {
		id, done = w.killedHunks(rt, b, sb, p, ids, whole)
	} else {
		r, err := apply.Changes(rt.Context(), sb, apply.Options{Hunks: ids})
		w.wantOutcomes(rt, steps, r, err)
		id = r.Transaction
	}
	switch {
	case !done || len(inConflict(steps)) > 0:
	case whole:
		w.applied(rt, b, b.applyTo(w.src, steps, false, asks), id)
	default:
		w.tookPart(rt, b, p, string(text), withMode, id)
	}
}

// killedHunks kills an apply of hunks of the file p, and lets a later command find what it left. It
// returns the transaction, and whether it was done.
func (w *world) killedHunks(rt *rapid.T, b *box, sb *record.Sandbox, p string, ids []string, whole bool) (id string, done bool) {
	args := []string{"apply", "--latest", "--in=" + w.mount, b.name}
	for _, id := range ids {
		args = append(args, "--hunk", id)
	}
	point := pickOfApply(rt)
	killed := w.killed(rt, point, args...)
	if killed && slices.Contains(afterCommit, point) {
		w.did["hunks: killed after the commit"]++
	}
	switch {
	case killed && slices.Contains(beforeCommit, point):
		w.did["hunks: killed before the commit"]++
		w.rolledBack(rt, b, sb, []string{p})
		return "", false
	case killed && whole:
		w.applyAgain(rt, sb, []string{p})
	case killed:
		w.applyNothing(rt, sb)
	}
	return w.last(rt).ID, true
}

// applyNothing applies a path that is no change: that ends what a killed apply of hunks has done,
// and does not apply the rest.
func (w *world) applyNothing(rt *rapid.T, sb *record.Sandbox) {
	r, err := apply.Changes(rt.Context(), sb, apply.Options{Paths: pathsOf([]string{"nothing"})})
	if !errdefs.Is(err, errdefs.NotFound) || r.Transaction != "" {
		rt.Fatalf("the apply of nothing: %v, %+v", err, r)
	}
}

func drawHunks(rt *rapid.T, set hunk.Set) (ids []string, chosen []textdiff.Hunk) {
	for _, h := range set.Text {
		switch pieces := h.Pieces; rapid.IntRange(0, 2).Draw(rt, "choice") {
		case 0:
			ids, chosen = append(ids, h.ID), append(chosen, h.Hunk)
		case 1:
			if len(pieces) > 0 {
				i := rapid.IntRange(0, len(pieces)-1).Draw(rt, "piece")
				ids, chosen = append(ids, pieces[i].ID), append(chosen, pieces[i].Hunk)
			}
		}
	}
	return ids, chosen
}

// tookPart is the effect of an apply of hunks.
func (w *world) tookPart(rt *rapid.T, b *box, p, text string, withMode bool, id string) {
	before := w.src[p]
	after := before
	after.text = text
	if withMode {
		after.mode = b.own[p].mode
	}
	w.src[p] = after
	w.applied(rt, b, map[string]move{p: {&before, &after}}, id)
	b.settlePart(w.src, p)
}

// settlePart drops a file that has no more changes, or makes what the source has its base.
func (d *delta) settlePart(src tree, p string) {
	if isSame(src[p], d.own[p].node) {
		d.drop(src, []string{p})
		return
	}
	d.rebase(src, []string{p})
}

// pickOfApply draws a point of an apply.
func pickOfApply(rt *rapid.T) string {
	if rapid.Bool().Draw(rt, "after the commit") {
		return pick(rt, afterCommit)
	}
	return pick(rt, beforeCommit)
}

// pick draws one of the points.
func pick(rt *rapid.T, points []string) string {
	return rapid.SampledFrom(slices.Clone(points)).Draw(rt, "point")
}
