package layer

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// casefold tells whether a directory of the source finds an entry by more than its
// exact name: in another case (casefold of ext4, FAT, NTFS, SMB), by a short name or
// with a dot appended. The policy decides on the name that the program used, so
// that an entry with another name must not be found.
type casefold struct {
	exact  atomic.Bool // the directory finds exact names only
	mu     sync.Mutex
	names  map[string]struct{} // as they were listed last
	readAt time.Time
}

// casefolds are what a read-only stack, which caches no mergedDir, knows of the
// directories that it looks into: without them each lookup of a name that has
// no letters would list its directory.
type casefolds struct {
	mu sync.Mutex
	m  map[vpath.Path]*casefold
}

// maxCasefolds bounds the directories that are known at a time.
const maxCasefolds = 16

// casefold returns what is known of the source's directory p.
func (s *Stack) casefold(p vpath.Path) *casefold {
	if !s.o.ReadOnly {
		return &casefold{} // kept with the mergedDir
	}
	c := &s.casefolds
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.m[p]; ok && time.Since(known.readAt) < sourceTTL {
		return known
	}
	if c.m == nil || len(c.m) >= maxCasefolds {
		c.m = map[vpath.Path]*casefold{}
	}
	c.m[p] = &casefold{readAt: time.Now()}
	return c.m[p]
}

// isExact reports whether the directory dir has the entry st, which was found as
// name, by just that name. A name with a letter settles the question for all
// of the directory if it is not found by the letter's other case.
func (s *casefold) isExact(dir int, name string, st *stat) (bool, error) {
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
func (s *casefold) listed(dir int, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.names[name]; ok {
		return true, nil
	}
	s.names = map[string]struct{}{}
	err := safefs.ReadNames(dir, func(name []byte, _ uint32, _ uint64) error {
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
