package supervise

import (
	"slices"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
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

// changeSet collects the net effect of one command on the names of the view:
// a file made and removed again leaves no trace.
type changeSet struct {
	mu      sync.Mutex
	paths   map[vpath.Path]change
	renamed map[vpath.Path]vpath.Path // to → from
	omitted int
}

// note adds one change.
func (s *changeSet) note(c fusefs.Change) {
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

func (s *changeSet) noteCreatedLocked(path vpath.Path) {
	if s.paths[path] == deleted {
		s.paths[path] = modified
		return
	}
	s.setLocked(path, created)
}

func (s *changeSet) noteDeletedLocked(path vpath.Path) {
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
func (s *changeSet) moveBelowLocked(from, to vpath.Path) {
	for p, c := range s.paths {
		if p != from && p.Within(from) {
			delete(s.paths, p)
			s.setLocked(p.Rebase(from, to), c)
		}
	}
}

// noteRenamedLocked moves what is known of from to to, where something may have
// been replaced.
func (s *changeSet) noteRenamedLocked(from, to vpath.Path, replaced bool) {
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

func (s *changeSet) setLocked(path vpath.Path, c change) {
	if _, known := s.paths[path]; !known && (len(s.paths) >= maxChanges || len(path) > maxChangedPath) {
		s.omitted++
		return
	}
	s.paths[path] = c
}

// list is a changeSet's content, each list sorted.
type list struct {
	Created, Modified, Deleted []vpath.Path
	Renamed                    []rename
	Omitted                    int
}

type rename struct{ From, To vpath.Path }

func (s *changeSet) take() list {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := list{Omitted: s.omitted}
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
		out.Renamed = append(out.Renamed, rename{From: from.Plain(), To: to.Plain()})
	}
	slices.Sort(out.Created)
	slices.Sort(out.Modified)
	slices.Sort(out.Deleted)
	slices.SortFunc(out.Renamed, func(a, b rename) int {
		if a.To < b.To {
			return -1
		}
		return 1
	})
	s.paths, s.renamed, s.omitted = nil, nil, 0
	return out
}

func (c list) empty() bool {
	return len(c.Created)+len(c.Modified)+len(c.Deleted)+len(c.Renamed)+c.Omitted == 0
}
