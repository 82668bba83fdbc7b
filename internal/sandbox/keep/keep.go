// Package keep applies, when a command has ended, what rules with apply: keep match: the state of
// programs, such as a token that was refreshed. It decides what is applied together and what waits.
// Which changes may be kept is for package review/keeping to say, and package apply looks at each
// again under its lock. A sandbox loses nothing: what is not kept waits for a review.
package keep

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/apply"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/conflict"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Result is what the end of a command did with the changes that rules with apply: keep match.
type Result struct {
	Kept  []KeptPath
	Waits []WaitingPath

	waits map[vpath.Path]bool // paths of Waits
}

// KeptPath is a path that was applied.
type KeptPath struct {
	Path   vpath.Path
	Status changes.Status
	Keys   []string // the only ones that were applied; empty: all of the file
}

// WaitingPath is a path, or keys of a file, that still wait for a review.
type WaitingPath struct {
	Path vpath.Path
	Keys []string
	Why  string
}

// Keep applies the changes that rules with apply: keep match, as far as they may be applied
// without a review: docs/adr/0048. What waits is no error. With drop the sandbox runs; see
// apply.Options.Drop. Errors: those of apply.Changes for the sandbox as a whole.
func Keep(ctx context.Context, s *record.Sandbox, drop func([]changes.Version) ([]vpath.Path, error)) (Result, error) {
	var k Result
	if !policy.Keeps(s.Stored.Rules) {
		return k, nil
	}
	units, waits, err := toKeep(s, drop != nil)
	k.Waits, k.waits = waits, map[vpath.Path]bool{}
	for _, w := range waits {
		k.waits[w.Path] = true
	}
	for _, u := range units {
		if err != nil {
			break
		}
		err = k.apply(ctx, s, u, drop)
	}
	slices.SortFunc(k.Kept, func(a, b KeptPath) int { return cmp.Compare(a.Path, b.Path) })
	slices.SortFunc(k.Waits, func(a, b WaitingPath) int { return cmp.Compare(a.Path, b.Path) })
	return k, err
}

// unit is what is applied at once.
type unit struct {
	paths []vpath.Path
	whole bool // all of it, or nothing
}

// toKeep returns what is to be applied, and what waits.
func toKeep(s *record.Sandbox, runs bool) (units []unit, waits []WaitingPath, err error) {
	w, err := changes.OpenToRead(s)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if changed, err := w.Stack.HasChanges(); err != nil || !changed {
		return nil, nil, err
	}
	list, err := w.Changes(nil, false)
	if err != nil {
		return nil, nil, err
	}
	files, _, err := review.FileDiffs(w, list, manifest.Manifest{})
	if err != nil {
		return nil, nil, err
	}
	var alone unit
	databases := map[vpath.Path]*unit{}
	for i := range files {
		f := &files[i]
		why := f.Keeping.Waits
		if why == "" && f.Keeping.Rule {
			why = whyNotNow(w, f, runs)
		}
		switch {
		case !f.Keeping.Rule:
		case why != "":
			waits = append(waits, WaitingPath{Path: f.Path, Why: why})
		case f.Keeping.Database == "":
			alone.paths = append(alone.paths, f.Path)
		default:
			u := databases[f.Keeping.Database]
			if u == nil {
				u = &unit{whole: true}
				databases[f.Keeping.Database] = u
			}
			u.paths = append(u.paths, f.Path)
		}
	}
	if alone.paths = append(alone.paths, removedDirs(w, list, files, alone.paths)...); len(alone.paths) > 0 {
		units = append(units, alone)
	}
	for _, u := range databases {
		units = append(units, *u)
	}
	return units, waits, nil
}

// whyNotNow says why a file of a database waits until later.
func whyNotNow(w *changes.Work, f *review.FileDiff, runs bool) string {
	database := f.Keeping.Database
	if database == "" {
		database = f.Path
	}
	switch {
	case runs && f.Keeping.Open:
		return "the database has an open journal, and the sandbox still runs"
	case isInUse(w, database):
		return "a program on the host uses the database"
	}
	return ""
}

// sqliteMagic begins a database (sqlite.org/fileformat.html).
const sqliteMagic = "SQLite format 3\x00"

// isInUse reports whether a process has a lock on the source's file p, if that is a database.
// SQLite locks parts of a database that it uses, with a journal in WAL mode for as long as it is
// open.
func isInUse(w *changes.Work, p vpath.Path) bool {
	used := false
	err := rights.AsUser(func() error {
		f, err := w.Stack.OpenSource(p)
		if err != nil {
			return err
		}
		defer f.Close()
		head := make([]byte, len(sqliteMagic))
		if n, _ := f.ReadAt(head, 0); string(head[:n]) != sqliteMagic {
			return nil
		}
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			return nil //nolint:nilerr // a file system without locks
		}
		used = lock.Type != unix.F_UNLCK
		return nil
	})
	return used && err == nil
}

// removedDirs returns the directories that the sandbox removed, that a rule with apply: keep
// matches and of which all that was in them is in paths.
func removedDirs(w *changes.Work, list []changes.Change, files []review.FileDiff, paths []vpath.Path) []vpath.Path {
	listed := map[vpath.Path]bool{}
	for i := range files {
		listed[files[i].Change.Path] = true
	}
	kept := map[vpath.Path]bool{}
	for _, p := range paths {
		kept[p] = true
	}
	var dirs []vpath.Path
	stays := map[vpath.Path]bool{}
	for _, c := range slices.Backward(list) {
		isDir := c.Status == changes.Deleted && record.IsDir(c.BaseMode()) && c.IsListed() && !listed[c.Path]
		_, byRule := w.Policy.KeptBy(c.Path)
		switch {
		case kept[c.Path] || c.Status == 0:
		case isDir && byRule && !stays[c.Path]:
			dirs = append(dirs, c.Path)
		default:
			for dir := range c.Path.Ancestors() {
				stays[dir] = true
			}
		}
	}
	return dirs
}

// mergeTries is how often a file is merged if another program keeps changing it.
const mergeTries = 3

// apply applies a unit.
func (k *Result) apply(ctx context.Context, s *record.Sandbox, u unit, drop func([]changes.Version) ([]vpath.Path, error)) error {
	failpoint.At("keep: begins")
	for try := 1; ; try++ {
		o := apply.Options{Paths: u.paths, OnConflict: conflict.Leave, AtStart: drop != nil, Drop: drop, Keep: &apply.Keeper{Whole: u.whole}}
		result, err := apply.Changes(ctx, s, o)
		if errdefs.Is(err, errdefs.NotFound) && drop != nil {
			return nil // the running sandbox removed one of them again; the next command's end looks anew
		}
		again := k.note(result, try == mergeTries)
		if err != nil && !slices.ContainsFunc(result.Paths, func(r apply.PathResult) bool { return r.Outcome == apply.Failed }) {
			return err // else the paths say it
		}
		if len(again) == 0 || u.whole {
			return nil
		}
		u.paths = again
	}
}

// note notes the outcomes, and returns the files that can be merged again.
func (k *Result) note(result apply.Result, last bool) (again []vpath.Path) {
	for _, r := range result.Paths {
		switch {
		case r.Outcome == apply.Applied && (len(r.Keys) > 0 || !r.Implied || r.Status == changes.Deleted):
			k.Kept = append(k.Kept, KeptPath{r.Path, r.Status, r.Keys})
		case r.Outcome == apply.Applied, r.Outcome == apply.Present, r.Outcome == apply.LeftOut && r.Implied:
		case r.Outcome == apply.Conflict && len(r.Keys) > 0 && !last:
			again = append(again, r.Path)
			continue
		case r.Outcome == apply.ChangedSinceReview:
			k.wait(r.Path, "a command changed it meanwhile")
		case r.Reason != "":
			k.wait(r.Path, r.Reason)
		}
		if len(r.KeyConflicts) > 0 {
			k.Waits = append(k.Waits, WaitingPath{r.Path, r.KeyConflicts, "the source has another value by now, or the key cannot be set"})
			k.waits[r.Path] = true
		}
	}
	return again
}

// wait notes that the path waits, unless that is known.
func (k *Result) wait(p vpath.Path, why string) {
	if !k.waits[p] {
		k.Waits = append(k.Waits, WaitingPath{Path: p, Why: why})
		k.waits[p] = true
	}
}
