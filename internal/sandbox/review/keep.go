package review

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Keeping says what a rule with apply: keep means for a change (docs/adr/0048).
type Keeping struct {
	// Rule says that such a rule decides at the path.
	Rule bool
	// Waits is why the end of a command does not apply the change all the same; "" if it does.
	Waits string
	// Keys are all that is applied of the file; empty: all of it.
	Keys []string
	// Database is the SQLite database that the file belongs to, if it or the database has a
	// journal. All files of a database are applied, or none. "" for any other file.
	Database vpath.Path
	// Open says that the database has a journal that is not empty, so that a command that runs may
	// be changing it.
	Open bool
}

// IsKept reports whether the end of a command applies the change, unless the source has changed.
func (k *Keeping) IsKept() bool { return k.Rule && k.Waits == "" }

// setKeeping sets FileDiff.Keeping of the files.
func setKeeping(w *changes.Work, files []FileDiff) {
	if !policy.Keeps(w.Policy.Rules()) {
		return
	}
	for i := range files {
		f := &files[i]
		if rule, is := w.Policy.KeptBy(f.Change.Path); is {
			f.Keeping = Keeping{Rule: true, Keys: rule.Keys.List()}
			f.Keeping.Waits = f.whyNotKept()
		}
	}
	keepReplacedDirs(files)
	for again := true; again; again = keepRenames(files) {
		keepDatabases(w, files)
	}
	keepRemovedDirs(files)
}

// whyNotKept says why a change must be reviewed whatever the rule says.
func (f *FileDiff) whyNotKept() string {
	_, _, inGit := GitDirOf(f.Path)
	removedDir := f.Status == changes.Deleted && f.isDirOnly()
	switch {
	case f.NotPlaced != "":
		return f.NotPlaced
	case f.Mark != nil:
		return fmt.Sprintf("it is marked: %s: %s", f.Mark.Risk, f.Mark.Reason)
	case inGit:
		return "git's files are applied as a whole"
	case removedDir && len(f.Keeping.Keys) == 0:
		return "" // see keepRemovedDirs
	}
	for _, side := range []*Side{f.New, f.Old} {
		switch {
		case side == nil:
		case side.Mode&record.TypeBits != unix.S_IFREG:
			return fmt.Sprintf("only regular files are kept, and it is a %s", record.TypeName(side.Mode))
		case side.Mode&0o111 != 0:
			return "it is executable"
		}
	}
	if f.New != nil && opensMode(f.Old, f.New) {
		return "its mode gives other users more rights than before"
	}
	return f.whyKeysNotKept()
}

// whyKeysNotKept is whyNotKept of a file of which only keys are kept.
func (f *FileDiff) whyKeysNotKept() string {
	switch {
	case len(f.Keeping.Keys) == 0:
		return ""
	case f.Old == nil:
		return "only keys of it are kept, and the source has no such file"
	case f.New == nil:
		return "only keys of it are kept, and it was deleted"
	case f.New.SizeBytes > jsonkeys.MaxBytes:
		return fmt.Sprintf("only keys of it are kept, and it is larger than %d MiB", jsonkeys.MaxBytes>>20)
	}
	return ""
}

// opensMode reports whether a file may be used by others who may not before; a new one, whether
// it may be changed by everybody.
func opensMode(before, now *Side) bool {
	if before == nil {
		return now.Mode&0o002 != 0
	}
	return now.Mode&record.PermBits&^before.Mode != 0
}

// The names of SQLite's files beside a database (sqlite.org/tempfiles.html).
var journalSuffixes = []string{"-wal", "-journal", "-shm"}

// databaseOf returns the database to which p belongs by its name: p itself if it is none of the
// other files.
func databaseOf(p vpath.Path) (database vpath.Path, isJournal bool) {
	for _, suffix := range journalSuffixes {
		if name, ok := strings.CutSuffix(p.Base(), suffix); ok && name != "" {
			return p.Dir().Child(name), true
		}
	}
	return p, false
}

// keepDatabases sees to it that of a database with journals all files are kept, or none.
func keepDatabases(w *changes.Work, files []FileDiff) {
	of := map[vpath.Path][]*FileDiff{}
	for i := range files {
		database, _ := databaseOf(files[i].Path)
		of[database] = append(of[database], &files[i])
	}
	for database, list := range of {
		d := sqliteFiles{work: w, path: database, files: list}
		if d.isKept() {
			d.decide()
		}
	}
}

// sqliteFiles has the changed files of what may be a database.
type sqliteFiles struct {
	work  *changes.Work
	path  vpath.Path
	files []*FileDiff
}

// isKept reports whether a rule with apply: keep matches one of the files.
func (d *sqliteFiles) isKept() bool {
	for _, f := range d.files {
		if f.Keeping.Rule {
			return true
		}
	}
	return false
}

func (d *sqliteFiles) decide() {
	hasJournal, open, why := d.look()
	if !hasJournal {
		return
	}
	for _, f := range d.files {
		f.Keeping.Database, f.Keeping.Open = d.path, open
		if f.Keeping.Rule && f.Keeping.Waits == "" {
			f.Keeping.Waits = why
		}
	}
}

// look reports whether there are journals, whether one of them holds something, and why the files
// wait.
func (d *sqliteFiles) look() (hasJournal, open bool, why string) {
	changed := map[vpath.Path]bool{}
	for _, f := range d.files {
		changed[f.Path] = true
		_, is := databaseOf(f.Path)
		hasJournal = hasJournal || is
		open = open || is && f.New != nil && f.New.SizeBytes > 0
		switch {
		case why != "":
		case !f.Keeping.Rule:
			why = fmt.Sprintf("the files of a database are kept together, and no rule with apply: keep matches %s", changes.Quote(f.Path))
		case f.Keeping.Waits != "":
			why = fmt.Sprintf("the files of a database are kept together, and %s waits", changes.Quote(f.Path))
		}
	}
	for _, suffix := range journalSuffixes[:2] {
		journal := d.path.Dir().Child(d.path.Base() + suffix)
		if changed[journal] {
			continue
		}
		if info, err := d.work.Stack.SourceInfo(journal); err == nil && info.Size > 0 {
			hasJournal, open = true, true
			why = fmt.Sprintf("the source has the journal %s of the database, which the sandbox did not change", changes.Quote(journal))
		}
	}
	return hasJournal, open, why
}

// keepReplacedDirs lets the deletion of what was in a directory wait if something else is in the
// place of the directory, because that waits, too.
func keepReplacedDirs(files []FileDiff) {
	replaced := map[vpath.Path]bool{}
	for i := range files {
		replaced[files[i].Change.Path] = files[i].Status == changes.Retyped
	}
	for i := range files {
		if f := &files[i]; f.Keeping.IsKept() && f.Status == changes.Deleted && replaced[f.Change.Taken] {
			f.Keeping.Waits = fmt.Sprintf("its directory %s is no directory any more", changes.Quote(f.Change.Taken))
		}
	}
}

// keepRenames lets a deletion wait if the new name of the file does: its content would be lost
// with a discard. It reports whether one waits now.
func keepRenames(files []FileDiff) (changed bool) {
	kept := map[vpath.Path]bool{}
	for i := range files {
		kept[files[i].Path] = files[i].Keeping.IsKept()
	}
	for i := range files {
		if f := &files[i]; f.Keeping.IsKept() && f.RenamedTo != "" && !kept[f.RenamedTo] {
			f.Keeping.Waits = fmt.Sprintf("it was renamed to %s, which waits", changes.Quote(f.RenamedTo))
			changed = true
		}
	}
	return changed
}

// keepRemovedDirs lets the deletion of a directory wait if something below it does.
func keepRemovedDirs(files []FileDiff) {
	waits := map[vpath.Path]bool{}
	for i := range files {
		if files[i].Keeping.IsKept() {
			continue
		}
		for dir := range files[i].Path.Ancestors() {
			waits[dir] = true
		}
	}
	for i := range files {
		if f := &files[i]; f.Keeping.IsKept() && f.isDirOnly() && waits[f.Path] {
			f.Keeping.Waits = "something in it waits"
		}
	}
}
