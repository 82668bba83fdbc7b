package effects

import (
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/audit"
	"github.com/agentfense/agentfense/internal/view/fusefs"
)

// maxChanges bounds what one command's file_changed event lists. More are
// counted only; `diff` has them all.
const maxChanges = 10_000

// maxChangedPath is the longest path that is listed, in bytes (PATH_MAX,
// linux/limits.h). A program inside can make far longer ones, which would fill
// this process's memory and the disk of the audit log.
const maxChangedPath = 4096

// change is what one command did to one path, net.
type change uint8

const (
	created change = iota + 1
	modified
	deleted
)

// ChangeSet collects the net effect of one command on the names of the view:
// a file made and removed again leaves no trace.
type ChangeSet struct {
	mu      sync.Mutex
	paths   map[vpath.Path]change
	renamed map[vpath.Path]vpath.Path // to → from
	omitted int
}

// Note adds one change.
func (s *ChangeSet) Note(c fusefs.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths, s.renamed = map[vpath.Path]change{}, map[vpath.Path]vpath.Path{}
	}
	switch c.Kind {
	case fusefs.Created:
		s.noteCreatedLocked(c.Path)
	case fusefs.Modified:
		if s.paths[c.Path] == 0 {
			s.setLocked(c.Path, modified)
		}
	case fusefs.Deleted:
		s.noteDeletedLocked(c.Path)
	case fusefs.Renamed:
		if c.Dir {
			s.moveBelowLocked(c.Path, c.To)
		}
		s.noteRenamedLocked(c.Path, c.To, c.Over)
	}
}

func (s *ChangeSet) noteCreatedLocked(path vpath.Path) {
	if s.paths[path] == deleted {
		s.paths[path] = modified
		return
	}
	s.setLocked(path, created)
}

func (s *ChangeSet) noteDeletedLocked(path vpath.Path) {
	if from, ok := s.renamed[path]; ok {
		delete(s.renamed, path)
		s.setLocked(from, deleted)
		return
	}
	if s.paths[path] == created {
		delete(s.paths, path)
		return
	}
	s.setLocked(path, deleted)
}

// moveBelowLocked moves what is known of all below the directory from to to.
func (s *ChangeSet) moveBelowLocked(from, to vpath.Path) {
	for p, c := range s.paths {
		if p != from && p.Within(from) {
			delete(s.paths, p)
			s.setLocked(p.Rebase(from, to), c)
		}
	}
}

// noteRenamedLocked moves what is known of from to to, where something may have
// been replaced.
func (s *ChangeSet) noteRenamedLocked(from, to vpath.Path, replaced bool) {
	if s.paths[from] == created {
		delete(s.paths, from)
		switch {
		case !replaced:
			s.noteCreatedLocked(to)
		case s.paths[to] == 0:
			s.setLocked(to, modified)
		}
		return
	}
	if origin, ok := s.renamed[from]; ok {
		delete(s.renamed, from)
		from = origin
	}
	delete(s.paths, from)
	delete(s.paths, to)
	if from == to {
		return // moved away and back
	}
	if len(s.renamed) >= maxChanges || max(len(from), len(to)) > maxChangedPath {
		s.omitted++
		return
	}
	s.renamed[to] = from
}

func (s *ChangeSet) setLocked(path vpath.Path, c change) {
	if _, known := s.paths[path]; !known && (len(s.paths) >= maxChanges || len(path) > maxChangedPath) {
		s.omitted++
		return
	}
	s.paths[path] = c
}

// Changes are the content of a ChangeSet, each list sorted.
type Changes struct {
	Created, Modified, Deleted []vpath.Path
	Renamed                    []Rename
	Omitted                    int
}

// Rename is what was moved, and where to.
type Rename struct{ From, To vpath.Path }

// Take returns what was noted, and forgets it.
func (s *ChangeSet) Take() Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Changes{Omitted: s.omitted}
	for p, c := range s.paths {
		p = p.Plain()
		switch c {
		case created:
			out.Created = append(out.Created, p)
		case modified:
			out.Modified = append(out.Modified, p)
		case deleted:
			out.Deleted = append(out.Deleted, p)
		}
	}
	for to, from := range s.renamed {
		out.Renamed = append(out.Renamed, Rename{From: from.Plain(), To: to.Plain()})
	}
	slices.Sort(out.Created)
	slices.Sort(out.Modified)
	slices.Sort(out.Deleted)
	slices.SortFunc(out.Renamed, func(a, b Rename) int {
		if a.To < b.To {
			return -1
		}
		return 1
	})
	s.paths, s.renamed, s.omitted = nil, nil, 0
	return out
}

// IsEmpty reports whether there is no change.
func (c Changes) IsEmpty() bool {
	return len(c.Created)+len(c.Modified)+len(c.Deleted)+len(c.Renamed)+c.Omitted == 0
}

// Event is what the audit log has of the changes of the command exec, "" for none, in a mount, ""
// for the workspace.
func (c Changes) Event(exec, mount string) audit.FileChanged {
	e := audit.FileChanged{
		Exec: exec, Mount: mount,
		Created: audit.Texts(c.Created), Modified: audit.Texts(c.Modified), Deleted: audit.Texts(c.Deleted),
		Omitted: int64(c.Omitted),
	}
	for _, r := range c.Renamed {
		e.Renamed = append(e.Renamed, audit.Rename{From: audit.Text(r.From), To: audit.Text(r.To)})
	}
	return e
}
