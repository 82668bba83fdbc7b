package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/failpoint"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/manifest"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
	"github.com/agentfense/agentfense/internal/view/layer"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Keeping is what the end of a command did with the changes that rules with apply: keep match.
type Keeping struct {
	Kept  []KeptPath
	Waits []WaitingPath
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
// Options.Drop. Errors: those of Changes for the sandbox as a whole.
func Keep(ctx context.Context, s *record.Sandbox, drop func([]changes.Version) ([]vpath.Path, error)) (Keeping, error) {
	var k Keeping
	if !policy.Keeps(s.Stored.Rules) {
		return k, nil
	}
	units, waits, err := toKeep(s, drop != nil)
	k.Waits = waits
	for _, u := range units {
		if err != nil {
			break
		}
		err = k.apply(ctx, s, u, drop)
	}
	slices.SortFunc(k.Kept, func(a, b KeptPath) int { return compare(a.Path, b.Path) })
	slices.SortFunc(k.Waits, func(a, b WaitingPath) int { return compare(a.Path, b.Path) })
	return k, err
}

func compare(a, b vpath.Path) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
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
func (k *Keeping) apply(ctx context.Context, s *record.Sandbox, u unit, drop func([]changes.Version) ([]vpath.Path, error)) error {
	failpoint.At("keep: begins")
	for try := 1; ; try++ {
		o := Options{Paths: u.paths, OnConflict: Leave, AtStart: drop != nil, Drop: drop, keep: &keeper{whole: u.whole}}
		result, err := Changes(ctx, s, o)
		if errdefs.Is(err, errdefs.NotFound) && drop != nil {
			return nil // the running sandbox removed one of them again; the next command's end looks anew
		}
		again := k.note(result, try == mergeTries)
		if err != nil && !slices.ContainsFunc(result.Paths, func(r PathResult) bool { return r.Outcome == Failed }) {
			return err // else the paths say it
		}
		if len(again) == 0 || u.whole {
			return nil
		}
		u.paths = again
	}
}

// note notes the outcomes, and returns the files that can be merged again.
func (k *Keeping) note(result Result, last bool) (again []vpath.Path) {
	for _, r := range result.Paths {
		switch {
		case r.Outcome == Applied && (len(r.Keys) > 0 || !r.Implied || r.Status == changes.Deleted):
			k.Kept = append(k.Kept, KeptPath{r.Path, r.Status, r.Keys})
		case r.Outcome == Applied, r.Outcome == Present, r.Outcome == LeftOut && r.Implied:
		case r.Outcome == Conflict && len(r.Keys) > 0 && !last:
			again = append(again, r.Path)
			continue
		case r.Outcome == ChangedSinceReview:
			k.wait(r.Path, "a command changed it meanwhile")
		case r.Reason != "":
			k.wait(r.Path, r.Reason)
		}
		if len(r.KeyConflicts) > 0 {
			k.Waits = append(k.Waits, WaitingPath{r.Path, r.KeyConflicts, "the source has another value by now, or the key cannot be set"})
		}
	}
	return again
}

// wait notes that the path waits, unless that is known.
func (k *Keeping) wait(p vpath.Path, why string) {
	if !slices.ContainsFunc(k.Waits, func(w WaitingPath) bool { return w.Path == p }) {
		k.Waits = append(k.Waits, WaitingPath{Path: p, Why: why})
	}
}

// keeper decides which steps of a plan the end of a command may execute.
type keeper struct {
	whole bool // all, or none
}

// restrict leaves out the steps that must be reviewed. It looks at the changes as they are now,
// under the apply lock: what was planned for them may be old.
func (k *keeper) restrict(p *plan) error {
	p.kept, p.whole = true, k.whole
	for _, s := range p.steps {
		switch {
		case s.Status == 0 || s.done:
			continue
		case s.outcome != Applied && s.outcome != Conflict:
			continue
		}
		if why := k.whyNot(p, s); why != "" {
			s.stop(Skipped, "%s", why)
			continue
		}
		if keys := s.shown.Keeping.Keys; len(keys) > 0 {
			if err := p.mergeKeys(s, keys); err != nil {
				return err
			}
		}
	}
	k.hold(p)
	return nil
}

// whyNot says why a step must be reviewed.
func (k *keeper) whyNot(p *plan, s *step) string {
	if s.implied {
		return k.whyNotDir(p, s)
	}
	switch kept := &s.shown.Keeping; {
	case s.shown.Path == "":
		return "it is not shown in a review"
	case !kept.Rule:
		return "no rule with apply: keep matches it any more"
	default:
		return kept.Waits
	}
}

// whyNotDir is whyNot of a directory that was made for what is kept, or removed after it.
func (k *keeper) whyNotDir(p *plan, s *step) string {
	_, byRule := p.work.Policy.KeptBy(s.Path)
	switch {
	case s.Status == changes.Deleted && byRule:
		return ""
	case s.Status != changes.Added || !record.IsDir(s.Info.Mode):
		return "it is a directory that was in the source before"
	case s.Info.Mode&0o002 != 0:
		return "everybody could write in the directory"
	}
	return ""
}

// hold leaves out everything if all of it cannot be applied, and what is in a directory that is
// left out.
func (k *keeper) hold(p *plan) {
	complete := true
	for _, s := range p.steps {
		if above := p.at[s.Path.Dir()]; above != nil && above != s && s.Status != changes.Deleted && above.outcome == Skipped && s.outcome == Applied {
			s.stop(Skipped, "its directory waits: %s", above.reason)
		}
		complete = complete && (s.Status == 0 || s.done || s.outcome == Applied)
	}
	if complete || !k.whole {
		return
	}
	for _, s := range p.steps {
		if s.Status != 0 && !s.done && s.outcome == Applied {
			s.stop(Skipped, "the files of a database are kept together, and another one waits")
		}
	}
}

// baseText returns the version of the file that the sandbox began with.
func (p *plan) baseText(s *step, source []byte) ([]byte, error) {
	if s.Fresh {
		return source, nil
	}
	f, err := p.work.Stack.BaseContent(s.Base)
	if err != nil {
		return nil, fmt.Errorf("the source has changed, and the version that the sandbox began with was too large to be stored")
	}
	defer f.Close()
	return readDocument(f)
}

// sourceNow returns the source's file at the step's path, and its identity from before that.
func (p *plan) sourceNow(s *step) (text []byte, base *layer.Base, err error) {
	if base, err = p.baseNow(s); err != nil {
		return nil, nil, err
	}
	if base.Mode&record.TypeBits != unix.S_IFREG {
		return nil, nil, changes.ErrMoved
	}
	err = rights.AsUser(func() error {
		f, err := p.work.Stack.OpenSource(s.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		text, err = readDocument(f)
		return err
	})
	return text, base, err
}
