package apply

import (
	"cmp"
	"encoding/json"
	"errors"
	"iter"
	"slices"

	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/history"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Rest is what remains to be done in the sandbox after an apply, an undo or a redo is committed. It
// is kept with the transaction, see history.Rest.
type Rest struct {
	// Applied or Undone is the record for the audit log.
	Applied *audit.Applied `json:"applied,omitempty"`
	Undone  *audit.Undone  `json:"undone,omitempty"`
	// Versions are what the delta drops, because the source has it.
	Versions []changes.Version `json:"versions,omitempty"`
	// Removed are the paths that the running sandbox removed before the source had them, escaped.
	// The delta has nothing there, and has to hide what the source has.
	Removed []string `json:"removed,omitempty"`
}

// partVersions is how many versions, or paths, a part of a Rest has at most.
const partVersions = 1000

// Parts returns the parts of r that history.Txn.KeepRest keeps.
func (r *Rest) Parts() iter.Seq[any] {
	return func(yield func(any) bool) {
		if !yield(Rest{Applied: r.Applied, Undone: r.Undone}) {
			return
		}
		for some := range slices.Chunk(r.Versions, partVersions) {
			if !yield(Rest{Versions: some}) {
				return
			}
		}
		for some := range slices.Chunk(r.Removed, partVersions) {
			if !yield(Rest{Removed: some}) {
				return
			}
		}
	}
}

// noteRemoved sets Removed. The source has the versions already: where the sandbox removes an entry
// from now on, the delta itself hides the source's.
func (r *Rest) noteRemoved(w *changes.Work) error {
	for _, v := range r.Versions {
		p, err := v.At()
		if err != nil {
			return err
		}
		if v.Made != nil && isOfSource(w, p) {
			r.Removed = append(r.Removed, v.Path)
		}
	}
	return nil
}

// isOfSource reports whether the view shows the source's entry at p.
func isOfSource(w *changes.Work, p vpath.Path) bool {
	info, err := w.Stack.LookupStored(p)
	return err == nil && info.Origin == layer.Source
}

// readRest reads what Parts returned.
func readRest(from *history.Rest) (Rest, error) {
	var rest Rest
	err := from.Read(func(text json.RawMessage) error {
		var part Rest
		if err := json.Unmarshal(text, &part); err != nil {
			return err
		}
		if _, err := changes.PathsOf(part.Versions); err != nil {
			return err
		}
		rest.Applied, rest.Undone = cmp.Or(rest.Applied, part.Applied), cmp.Or(rest.Undone, part.Undone)
		rest.Versions = append(rest.Versions, part.Versions...)
		rest.Removed = append(rest.Removed, part.Removed...)
		return nil
	})
	return rest, err
}

// Settle does what a committed transaction has left to do in the sandbox that is open, also that of
// a killed process, and what history.Source.Rebase does. The caller holds the lock of the source,
// and has called Recover. It does nothing for nil. Errors: those of Rebase, of w.Drop and of the
// host; the next call tries again.
func Settle(h *history.Source, w *changes.Work) error {
	if h == nil || w.Elsewhere {
		return nil
	}
	if err := h.Rebase(w); err != nil {
		return err
	}
	rests, err := h.Rests(w.Sandbox)
	if err != nil {
		return err
	}
	for _, r := range rests {
		if err := settleOne(r, w); err != nil {
			return err
		}
	}
	return nil
}

func settleOne(r *history.Rest, w *changes.Work) error {
	rest, err := readRest(r)
	if err != nil {
		return err
	}
	again := r.Told
	if !again {
		if err := errors.Join(rest.tell(w), r.MarkTold()); err != nil {
			return err
		}
	}
	if err := rest.updateBases(w, again); err != nil {
		return err
	}
	failpoint.At("settle: told")
	versions, _, err := w.MarkKept(rest.Versions)
	if err == nil && len(versions) > 0 {
		_, err = w.Drop(versions)
	}
	if err != nil {
		return err
	}
	failpoint.At("settle: dropped")
	settled := map[vpath.Path]bool{}
	for _, v := range versions {
		if p, err := v.At(); err == nil && !v.IsBaseOnly() {
			settled[p] = true
		}
	}
	if err := manifest.Settle(w.Sandbox, func(p vpath.Path) bool { return settled[p] }); err != nil {
		return err
	}
	return r.Remove()
}

// tell writes the record to the audit log.
func (r *Rest) tell(w *changes.Work) error {
	if r.Undone != nil {
		return w.Sandbox.Log(*r.Undone)
	}
	if r.Applied != nil {
		return w.Sandbox.Log(*r.Applied)
	}
	return nil
}

// updateBases makes the source's present entries the new bases, if they are what the transaction
// made: the end of another transaction can change their ctime. To the layer an entry that the delta
// does not have is one that the sandbox has removed. So it gets no new base unless that is known: a
// discard or a restore may have taken the entry out of the delta since, and so may, as again says,
// a killed process that did the rest.
func (r *Rest) updateBases(w *changes.Work, again bool) error {
	removed := map[string]bool{}
	if !again {
		for _, p := range r.Removed {
			removed[p] = true
		}
	}
	for i := range r.Versions {
		v := &r.Versions[i]
		if v.Made == nil {
			continue
		}
		p, err := v.At()
		if err != nil {
			return err
		}
		if v.Made = w.PlacedNow(p, v.Made); !removed[v.Path] && isOfSource(w, p) {
			v.Made = nil
		}
	}
	return nil
}
