// Package uses records which paths of a view were used, and how.
//
// A Recorder keeps each path once, in bounded space. What does not fit is counted. It is safe
// for concurrent use.
package uses

import (
	"slices"
	"strings"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Kind says how a path was used. Several kinds can be set.
type Kind uint16

// The kinds.
const (
	Found    Kind = 1 << iota // looked up, and it exists
	Listed                    // the names in the directory were read
	Read                      // opened for reading, or the target of the link was read
	Executed                  // opened to be executed
	Written                   // opened for writing, or content, mode or times were changed
	Created                   // made: also by a rename to it
	Removed                   // removed: also by a rename from it
	Tree                      // a directory that was moved, with all below it
)

// Changes are the kinds that need the permission write.
const Changes = Written | Created | Removed | Tree

// Use is what was done with a path.
type Use struct {
	Path vpath.Path
	Kind Kind
	Dir  bool
	// Programs are the names of the first programs that used it.
	Programs []string
}

const (
	maxPaths    = 1 << 19
	maxBytes    = 64 << 20 // of paths
	maxPath     = 4096     // PATH_MAX, linux/limits.h
	maxPrograms = 255
	perPath     = 3 // programs
)

// Recorder collects uses. The zero value is ready.
type Recorder struct {
	mu       sync.Mutex
	paths    map[vpath.Path]*record
	bytes    int
	omitted  int64
	programs []string
}

type record struct {
	kind     Kind
	dir      bool
	programs [perPath]uint8 // indexes in Recorder.programs, from 1
}

// Note adds a use. It asks for the name of the program only if the use is new.
func (r *Recorder) Note(p vpath.Path, k Kind, dir bool, program func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.paths[p]
	if u != nil && u.kind&k == k && u.dir == dir {
		return
	}
	if u == nil {
		if len(r.paths) >= maxPaths || len(p) > maxPath || r.bytes+len(p) > maxBytes {
			r.omitted++
			return
		}
		if r.paths == nil {
			r.paths = map[vpath.Path]*record{}
		}
		u = &record{}
		r.paths[p], r.bytes = u, r.bytes+len(p)
	}
	u.kind |= k
	u.dir = dir
	if k != Found {
		r.addProgramLocked(u, program())
	}
}

func (r *Recorder) addProgramLocked(u *record, name string) {
	i := slices.Index(r.programs, name)
	switch {
	case name == "" || i < 0 && len(r.programs) >= maxPrograms:
		return
	case i < 0:
		i = len(r.programs)
		r.programs = append(r.programs, name)
	}
	for j, known := range u.programs {
		switch known {
		case uint8(i + 1):
			return
		case 0:
			u.programs[j] = uint8(i + 1)
			return
		}
	}
}

// All returns the uses, by path, and how many were not recorded because there were too many.
func (r *Recorder) All() (all []Use, omitted int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all = make([]Use, 0, len(r.paths))
	for p, u := range r.paths {
		use := Use{Path: p, Kind: u.kind, Dir: u.dir}
		for _, i := range u.programs {
			if i > 0 {
				use.Programs = append(use.Programs, r.programs[i-1])
			}
		}
		all = append(all, use)
	}
	slices.SortFunc(all, func(a, b Use) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return all, r.omitted
}

// Is reports whether the path was used in all ways of k.
func (r *Recorder) Is(p vpath.Path, k Kind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.paths[p]
	return u != nil && u.kind&k == k
}
