package portable

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
)

// notedHoles is how many bytes of holes in a file a note names.
const notedHoles = 64 << 20

// fits refuses files that are too large for an archive in dir, before it is written. An archive
// stores holes as zeros, so a file that takes no room can have any size. copies is how often the
// archive is on the disk while it is written. Errors: Exhausted.
func (d *delta) fits(dir string, copies int64, how Options) error {
	var size, holes int64
	var hollow *entry // the one with the most holes
	for i := range d.entries {
		e := &d.entries[i]
		if e.deleted || e.linkOf != "" || e.info.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		size = safefs.AddSizes(size, e.info.Size)
		if n := e.holes(); n > holes {
			hollow, holes = e, n
		}
		if n := e.holes(); n >= notedHoles {
			d.notes = append(d.notes, fmt.Sprintf("%s has %d bytes of holes: the archive has zeros in their place", e.path, n))
		}
	}
	if how.MostBytes > 0 && size > how.MostBytes {
		return tooLarge(how.MostBytes)
	}
	var disk unix.Statfs_t
	if hollow == nil || unix.Statfs(dir, &disk) != nil {
		return nil
	}
	room := int64(disk.Bavail) * disk.Bsize / copies
	if size <= room {
		return nil
	}
	return errdefs.New(errdefs.Exhausted, "export: the archive would have %d bytes and there is room for %d: %s has %d bytes of holes, in whose place an archive has zeros; --format agentfs stores no holes",
		size, room, hollow.path, holes)
}

// holes returns how many bytes of a file take no room on the disk.
func (e *entry) holes() int64 {
	const block = 512 // of Blocks
	return max(e.info.Size-e.info.Blocks*block, 0)
}
