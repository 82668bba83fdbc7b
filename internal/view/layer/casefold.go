package layer

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/vpath"
)

// spelling tells whether one directory of the source finds names by other
// spellings too: by another case (casefold of ext4, FAT, NTFS, SMB), by a short
// name or with a dot behind. The policy judges the spelling that is asked for,
// so what is spelt otherwise there must not be found.
type spelling struct {
	exact atomic.Bool // names are found as they are spelt only
	mu    sync.Mutex
	names map[string]struct{} // as they were listed last
	born  time.Time
}

// spellings are what a read-only stack, which keeps no views, knows of the
// directories that it looks into: without them each lookup of a name that has
// no letters would list its directory.
type spellings struct {
	mu sync.Mutex
	m  map[vpath.Path]*spelling
}

// maxSpellings bounds the directories that are known at a time.
const maxSpellings = 16

// spelling returns the spelling of the source's directory p.
func (s *Stack) spelling(p vpath.Path) *spelling {
	if !s.o.ReadOnly {
		return &spelling{} // kept with the view
	}
	c := &s.spellings
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.m[p]; ok && time.Since(known.born) < sourceTTL {
		return known
	}
	if c.m == nil || len(c.m) >= maxSpellings {
		c.m = map[vpath.Path]*spelling{}
	}
	c.m[p] = &spelling{born: time.Now()}
	return c.m[p]
}

// spelt reports whether the directory dir has the entry st, which was found as
// name, by just that name. A name with a letter settles the question for all
// of the directory if it is not found by the letter's other case.
func (s *spelling) spelt(dir int, name string, st *stat) (bool, error) {
	if s.exact.Load() {
		return true, nil
	}
	if other := swapCase(name); other != name {
		o, err := statAt(dir, other)
		switch {
		case err == unix.ENOENT, err == nil && (o.dev != st.dev || o.ino != st.ino):
			s.exact.Store(true)
			return true, nil
		case err != nil:
			return false, err
		}
	}
	return s.listed(dir, name)
}

// listed looks for name in the directory's list. A name that is not in it may
// be new.
func (s *spelling) listed(dir int, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.names[name]; ok {
		return true, nil
	}
	s.names = map[string]struct{}{}
	err := readNames(dir, func(name []byte, _ uint32, _ uint64) error {
		s.names[string(name)] = struct{}{}
		return nil
	})
	_, ok := s.names[name]
	return ok, err
}

// swapCase changes the case of every ASCII letter, the letters that every
// file system which folds any folds.
func swapCase(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'a' <= c|0x20 && c|0x20 <= 'z' {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}
