package gitindex

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// New is an entry that Replace adds.
type New struct {
	Path   string
	Mode   uint32
	Object string // the id, not in hex
	Stat   unix.Stat_t
}

// Replace removes the entries of the paths gone, adds others, and drops the derived extensions. An
// added entry takes the place of one with its path.
func (x *Index) Replace(gone []string, added []New) {
	out := map[string]bool{}
	for _, path := range gone {
		out[path] = true
	}
	for i := range added {
		out[added[i].Path] = true
	}
	x.entries = slices.DeleteFunc(x.entries, func(e entry) bool { return out[e.path] })
	for i := range added {
		x.entries = append(x.entries, added[i].entry())
	}
	slices.SortStableFunc(x.entries, func(a, b entry) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.flags&flagStage, b.flags&flagStage))
	})
	if x.version == 4 {
		x.compress()
	}
	x.DropDerived()
}

// longName is the length of a name in the flags of an entry from which on it is not exact.
const longName = 0xfff

func (n *New) entry() entry {
	st := &n.Stat
	var fixed []byte
	for _, v := range []uint32{
		uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec), uint32(st.Dev), uint32(st.Ino),
		n.Mode, st.Uid, st.Gid, uint32(st.Size),
	} {
		fixed = binary.BigEndian.AppendUint32(fixed, v)
	}
	return entry{fixed: append(fixed, n.Object...), flags: uint16(min(len(n.Path), longName)), stored: []byte(n.Path), path: n.Path}
}

// compress stores each name as what it does not share with the one before, as version 4 does.
func (x *Index) compress() {
	previous := ""
	for i := range x.entries {
		e := &x.entries[i]
		shared := 0
		for shared < min(len(previous), len(e.path)) && previous[shared] == e.path[shared] {
			shared++
		}
		e.stored = append(appendVarint(nil, len(previous)-shared), e.path[shared:]...)
		previous = e.path
	}
}

// appendVarint appends the variable width integer that varint reads.
func appendVarint(to []byte, value int) []byte {
	digits := []byte{byte(value & 0x7f)}
	for value >>= 7; value > 0; value >>= 7 {
		value--
		digits = append(digits, 0x80|byte(value&0x7f))
	}
	slices.Reverse(digits)
	return append(to, digits...)
}
