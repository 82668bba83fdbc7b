// Package keeping decides which changes rules with apply: keep let be applied without a review
// (docs/adr/0048), and merges the keys of files of which only keys are kept. It changes nothing.
package keeping

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/jsonkeys"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// Decision says what a rule with apply: keep means for a change (docs/adr/0048).
type Decision struct {
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
func (d *Decision) IsKept() bool { return d.Rule && d.Waits == "" }

// Change is a change to decide about.
type Change struct {
	changes.Change
	Mark      string // the risk mark; "" for none
	InGit     bool   // it is below a git directory
	RenamedTo vpath.Path
	NotPlaced string // why an apply as this user will fail; "" if it will not
	Decision  Decision
}

// Decide sets the decisions about the changes that a review lists.
func Decide(w *changes.Work, list []Change) {
	for i := range list {
		c := &list[i]
		if rule, is := w.Policy.KeptBy(c.Path); is {
			c.Decision = Decision{Rule: true, Keys: rule.Keys.List()}
			c.Decision.Waits = c.whyNotKept()
		}
	}
	keepReplacedDirs(list)
	for again := true; again; again = keepRenames(list) {
		keepDatabases(w, list)
	}
	keepRemovedDirs(list)
}

// modes are the modes in the source and in the delta; 0 where nothing is.
func (c *Change) modes() (before, now uint32) {
	if c.Status != changes.Deleted {
		now = c.Info.Mode
	}
	return c.BaseMode(), now
}

// isRemovedDir reports whether the change removes a directory.
func (c *Change) isRemovedDir() bool {
	before, now := c.modes()
	return record.IsDir(before) && now == 0
}

// whyNotKept says why a change must be reviewed whatever the rule says.
func (c *Change) whyNotKept() string {
	before, now := c.modes()
	switch {
	case c.NotPlaced != "":
		return c.NotPlaced
	case c.Mark != "":
		return "it is marked: " + c.Mark
	case c.InGit:
		return "git's files are applied as a whole"
	case c.isRemovedDir() && len(c.Decision.Keys) == 0:
		return "" // see keepRemovedDirs
	}
	for _, mode := range []uint32{now, before} {
		switch {
		case mode == 0:
		case mode&record.TypeBits != unix.S_IFREG:
			return fmt.Sprintf("only regular files are kept, and it is a %s", record.TypeName(mode))
		case mode&0o111 != 0:
			return "it is executable"
		}
	}
	if opensMode(before, now) {
		return "its mode gives other users more rights than before"
	}
	return c.whyKeysNotKept()
}

// whyKeysNotKept is whyNotKept of a file of which only keys are kept.
func (c *Change) whyKeysNotKept() string {
	before, now := c.modes()
	switch {
	case len(c.Decision.Keys) == 0:
		return ""
	case before == 0:
		return "only keys of it are kept, and the source has no such file"
	case now == 0:
		return "only keys of it are kept, and it was deleted"
	case c.Info.Size > jsonkeys.MaxBytes:
		return fmt.Sprintf("only keys of it are kept, and it is larger than %d MiB", jsonkeys.MaxBytes>>20)
	}
	return ""
}

// opensMode reports whether a file may be used by others who may not before; a new one, whether
// it may be changed by everybody.
func opensMode(before, now uint32) bool {
	if before == 0 {
		return now&0o002 != 0
	}
	return now&record.PermBits&^before != 0
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
func keepDatabases(w *changes.Work, list []Change) {
	of := map[vpath.Path][]*Change{}
	for i := range list {
		database, _ := databaseOf(list[i].Path)
		of[database] = append(of[database], &list[i])
	}
	for database, files := range of {
		d := sqliteFiles{work: w, path: database, files: files}
		if d.isKept() {
			d.decide()
		}
	}
}

// sqliteFiles has the changed files of what may be a database.
type sqliteFiles struct {
	work  *changes.Work
	path  vpath.Path
	files []*Change
}

// isKept reports whether a rule with apply: keep matches one of the files.
func (d *sqliteFiles) isKept() bool {
	for _, f := range d.files {
		if f.Decision.Rule {
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
		f.Decision.Database, f.Decision.Open = d.path, open
		if f.Decision.Rule && f.Decision.Waits == "" {
			f.Decision.Waits = why
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
		open = open || is && f.Status != changes.Deleted && f.Info.Size > 0
		switch {
		case why != "":
		case !f.Decision.Rule:
			why = fmt.Sprintf("the files of a database are kept together, and no rule with apply: keep matches %s", changes.Quote(f.Path))
		case f.Decision.Waits != "":
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
func keepReplacedDirs(list []Change) {
	replaced := map[vpath.Path]bool{}
	for i := range list {
		replaced[list[i].Path] = list[i].Status == changes.Retyped
	}
	for i := range list {
		if f := &list[i]; f.Decision.IsKept() && f.Status == changes.Deleted && replaced[f.Taken] {
			f.Decision.Waits = fmt.Sprintf("its directory %s is no directory any more", changes.Quote(f.Taken))
		}
	}
}

// keepRenames lets a deletion wait if the new name of the file does: its content would be lost
// with a discard. It reports whether one waits now.
func keepRenames(list []Change) (changed bool) {
	kept := map[vpath.Path]bool{}
	for i := range list {
		kept[list[i].Path] = list[i].Decision.IsKept()
	}
	for i := range list {
		if f := &list[i]; f.Decision.IsKept() && f.RenamedTo != "" && !kept[f.RenamedTo] {
			f.Decision.Waits = fmt.Sprintf("it was renamed to %s, which waits", changes.Quote(f.RenamedTo))
			changed = true
		}
	}
	return changed
}

// keepRemovedDirs lets the deletion of a directory wait if something below it does.
func keepRemovedDirs(list []Change) {
	waits := map[vpath.Path]bool{}
	for i := range list {
		if list[i].Decision.IsKept() {
			continue
		}
		for dir := range list[i].Path.Ancestors() {
			waits[dir] = true
		}
	}
	for i := range list {
		if f := &list[i]; f.Decision.IsKept() && f.isRemovedDir() && waits[f.Path] {
			f.Decision.Waits = "something in it waits"
		}
	}
}
