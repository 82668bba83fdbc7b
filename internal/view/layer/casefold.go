package layer

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// casefold records whether a directory of the source finds an entry under names other than
// its exact one: in another case (casefold of ext4, FAT, NTFS, SMB), by a short name or
// with a dot appended. The policy decides on the name that the program used, so the stack
// must not return an entry that has another name.
type casefold struct {
	exact  atomic.Bool // the directory finds exact names only
	mu     sync.Mutex
	names  map[string]struct{} // from the last listing
	readAt time.Time
}

// casefolds caches casefold for a read-only stack, which caches no mergedDir. Without the
// cache, each lookup of a name without letters would list its directory.
type casefolds struct {
	mu sync.Mutex
	m  map[vpath.Path]*casefold
}

// maxCasefolds is the maximum number of cached directories.
const maxCasefolds = 16

// casefold returns the casefold of the source's directory p.
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

// isExact reports whether name is the exact name of the entry st, which was found by name
// in the directory dir. If a name with a letter is not found in the other case of that
// letter, the whole directory is exact.
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

// listed reports whether the directory lists name. It lists the directory again if the last
// listing does not have name, because name may be new.
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

// swapCase changes the case of every ASCII letter. Every case-insensitive file system folds
// these letters.
func swapCase(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'a' <= c|0x20 && c|0x20 <= 'z' {
			b[i] = c ^ 0x20
		}
	}
	return string(b)
}
