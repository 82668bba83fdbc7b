package layer

import (
	"errors"
	"sync"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/nameenc"
)

// A name that a layer does not have costs two system calls. Frozen layers never change, so their
// directories are listed once, if they are asked often, and the answer comes from memory.
const (
	// listFrom is the number of frozen layers from which on directories are listed.
	listFrom = 2
	// listAfter is the number of lookups in a directory of a layer after which it is listed.
	listAfter = 8
	// maxListed bounds the names of one listed directory, and maxListings those of all.
	maxListed   = 4 << 10
	maxListings = 32 << 10
)

// listings has the names that directories of frozen layers have. The zero value is empty.
type listings struct {
	mu   sync.Mutex
	dirs map[frozenDir]*listing
	size int // names and directories
}

type frozenDir struct {
	layer string // its name in the store
	path  vpath.Path
}

// listing is a directory of a frozen layer. Until it is listed, names is nil.
type listing struct {
	lookups int
	names   map[string]struct{} // as stored
}

// lacks reports whether the directory at, open as fd, is known to have no entry stored. It never
// reports that of a directory that it has not listed.
func (l *listings) lacks(at frozenDir, fd int, stored string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.dirs[at]
	if d == nil {
		d = &listing{}
		l.add(at, d)
	}
	if d.names == nil {
		if d.lookups++; d.lookups != listAfter {
			return false
		}
		names, err := listNames(fd)
		if err != nil {
			return false // too many names, or an error that a lookup reports
		}
		d.names = names
		l.size += len(names)
	}
	_, has := d.names[stored]
	return !has
}

// add adds a directory. If there are too many names, it forgets all others first.
func (l *listings) add(at frozenDir, d *listing) {
	if l.dirs == nil || l.size >= maxListings {
		l.dirs, l.size = map[frozenDir]*listing{}, 0
	}
	l.dirs[at] = d
	l.size++
}

var errTooManyNames = errors.New("too many names")

func listNames(fd int) (map[string]struct{}, error) {
	names := map[string]struct{}{}
	err := safefs.ReadNames(fd, func(name []byte, _ uint32, _ uint64) error {
		if len(names) == maxListed {
			return errTooManyNames
		}
		names[string(name)] = struct{}{}
		return nil
	})
	return names, err
}

// lacks reports whether a part of the directory dir is known to have no entry stored.
func (s *Stack) lacks(dir vpath.Path, pt *part, stored string) bool {
	if pt.origin != Frozen || len(s.layers)-2 < listFrom {
		return false
	}
	return s.listings.lacks(frozenDir{s.layers[pt.layer].name, dir}, pt.fd, stored)
}

// isHidden reports whether a delta's part of the directory dir has a whiteout for name.
func (s *Stack) isHidden(dir vpath.Path, pt *part, name string) (bool, error) {
	stored, _ := nameenc.Whiteout(name)
	if s.lacks(dir, pt, stored) {
		return false, nil
	}
	return exists(pt.fd, stored)
}
