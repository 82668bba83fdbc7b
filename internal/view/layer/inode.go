package layer

import (
	"encoding/binary"
	"hash/fnv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/view/layer/journal"
)

// ownBit marks numbers that are not the source's. Among these, hashBit marks the numbers
// that are derived from a path.
const (
	ownBit  = 1 << 63
	hashBit = 1 << 62
)

// sourceIno returns the number shown for the source's entry at p.
func (s *Stack) sourceIno(p vpath.Path, st *stat) uint64 {
	if st.dev == s.sourceDev && st.ino&ownBit == 0 && (st.nlink == 1 || st.isDir()) {
		return st.ino
	}
	return hashNumber(st.dev, st.ino, string(p))
}

// NumbersOf returns the inode numbers that the entry recorded as b at p may have shown.
// They do not depend on the present source.
func NumbersOf(p vpath.Path, b *Base) []uint64 {
	if b == nil || b.Absent {
		return nil
	}
	numbers := []uint64{hashNumber(b.Dev, b.Ino, string(p))}
	if b.Ino&ownBit == 0 && (b.Nlink == 1 || b.Mode&typeMask == unix.S_IFDIR) {
		numbers = append(numbers, b.Ino)
	}
	return numbers
}

// hashNumber derives a generated number.
func hashNumber(a, b uint64, c string) uint64 {
	h := fnv.New64a()
	var words [16]byte
	binary.LittleEndian.PutUint64(words[:8], a)
	binary.LittleEndian.PutUint64(words[8:], b)
	_, _ = h.Write(words[:])
	_, _ = h.Write([]byte(c))
	return h.Sum64() | ownBit | hashBit
}

// ownNumber returns the number to show for a file made in the delta.
func ownNumber(ino uint64) uint64 { return ino&^hashBit | ownBit }

// inodes holds the shown numbers of the delta's backing files that do not show ownNumber.
type inodes struct {
	mu    sync.RWMutex
	m     map[uint64]journal.Alias
	taken map[uint64]int // how many entries of m show that number
}

// shown returns the number to show for a file of a delta. It compares the birth time,
// because the file system may have reused the backing number.
func (n *inodes) shown(st *stat) uint64 {
	n.mu.RLock()
	a, ok := n.m[st.ino]
	n.mu.RUnlock()
	if ok && a.Birth == st.birth {
		return a.Shown
	}
	return ownNumber(st.ino)
}

// has reports whether the backing file ino may show another number than ownNumber.
func (n *inodes) has(ino uint64) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, ok := n.m[ino]
	return ok
}

// isTaken reports whether another file shows the number that a new file would show. This
// happens when the file system reuses the backing number of a removed frozen file whose
// copy still shows it.
func (n *inodes) isTaken(shown uint64) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.taken[shown] > 0
}

// byShown returns the backing files by the numbers that they show. It may include removed
// files.
func (n *inodes) byShown() map[uint64][]uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	m := make(map[uint64][]uint64, len(n.m))
	for ino, a := range n.m {
		m[a.Shown] = append(m[a.Shown], ino)
	}
	return m
}

// unalias gives the backing file ino another number if it shows the given one. It returns
// the alias to record.
func (n *inodes) unalias(ino, shown uint64) (journal.Alias, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.m[ino]
	if !ok || a.Shown != shown {
		return journal.Alias{}, false
	}
	a.Shown = hashNumber(ino, uint64(a.Birth), "")
	n.setLocked(ino, a)
	return a, true
}

func (n *inodes) set(ino uint64, a journal.Alias) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setLocked(ino, a)
}

func (n *inodes) setLocked(ino uint64, a journal.Alias) {
	n.forgetLocked(ino)
	n.m[ino] = a
	n.taken[a.Shown]++
}

// reset replaces all that is known.
func (n *inodes) reset(m map[uint64]journal.Alias) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.m, n.taken = m, make(map[uint64]int, len(m))
	for _, a := range m {
		n.taken[a.Shown]++
	}
}

// forget removes the entry of a backing file that lost its last name. It reports whether
// there was one.
func (n *inodes) forget(ino uint64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.forgetLocked(ino)
}

func (n *inodes) forgetLocked(ino uint64) bool {
	a, ok := n.m[ino]
	if !ok {
		return false
	}
	delete(n.m, ino)
	if n.taken[a.Shown]--; n.taken[a.Shown] <= 0 {
		delete(n.taken, a.Shown)
	}
	return true
}

// number makes sure that a new file shows a number that no other file shows.
func (s *Stack) number(st *stat) error {
	if !s.inodes.isTaken(ownNumber(st.ino)) {
		return nil
	}
	alias := journal.Alias{Birth: st.birth, Shown: hashNumber(st.ino, uint64(st.birth), "")}
	s.inodes.set(st.ino, alias)
	return s.journal.Append(journal.AliasRecord(st.ino, alias))
}

// forgetNumber drops the number of a backing file that is gone.
func (s *Stack) forgetNumber(ino uint64) {
	if s.inodes.forget(ino) {
		// Birth times are as coarse as the kernel's tick, so the next file with this number
		// could be mistaken for it. A lost record has no other effect.
		_ = s.journal.AppendDeferred(journal.UnaliasRecord(ino))
	}
}
