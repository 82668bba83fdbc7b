// Package held tells how much a sandbox holds, by a bounded look, and when it was last used. It
// only reads.
package held

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/sandbox/review"
	"github.com/agentfense/agentfense/internal/sandbox/rights"
)

// maxLooks bounds how many entries Usage looks at in one sandbox.
const maxLooks = 2000

// Usage is what a sandbox holds, as far as a bounded look tells.
type Usage struct {
	// Changes are those that were not applied, and branches with commits. With More there are as
	// many entries in the delta at least, which nobody counted further.
	Changes int
	More    bool
	// DiskBytes is what the sandbox's directory has allocated, or with MoreDisk a
	// part of it.
	DiskBytes int64
	MoreDisk  bool
}

// Of looks at what the sandbox holds, at maxLooks entries at most.
func Of(s *record.Sandbox) (Usage, error) {
	var u Usage
	delta := meter{left: maxLooks}
	for _, part := range s.Parts() {
		dirs, err := part.LayerDirs()
		if err != nil {
			return u, err
		}
		for _, dir := range dirs {
			if err := delta.dir(unix.AT_FDCWD, dir, 0); err != nil {
				return u, record.HostError("sandbox "+s.Name(), err)
			}
		}
	}
	all := meter{left: maxLooks, passesClosed: true} // a kept home may hold such
	if err := all.dir(unix.AT_FDCWD, s.Dir(), 0); err != nil {
		return u, record.HostError("sandbox "+s.Name(), err)
	}
	u.DiskBytes, u.MoreDisk = max(all.bytes, delta.bytes), all.left < 0 || all.passed
	if delta.left < 0 {
		u.Changes, u.More = maxLooks, true
		return u, nil
	}
	p, err := review.CountPending(s)
	u.Changes = p.Changes + p.Branches
	return u, err
}

// meter adds up what lies in a directory until it has seen enough.
type meter struct {
	left  int // entries that may be looked at still; negative when there were more
	bytes int64
	// passesClosed passes by directories that may not be listed, and passed says that
	// it did.
	passesClosed, passed bool
}

// measureBatch is how many names are read at once.
const measureBatch = 256

// dir looks at the directory name of parent and all below. What the supervisor's view
// and terminals are mounted on is empty outside of its mount namespace; docker's view
// is another file system and is left out.
func (m *meter) dir(parent int, name string, depth int) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // it went meanwhile
		return nil
	}
	if m.passesClosed && errors.Is(err, unix.EACCES) {
		m.passed = true
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	for {
		names, err := f.Readdirnames(measureBatch)
		for _, n := range names {
			if m.left--; m.left < 0 {
				return nil
			}
			if err := m.entry(fd, n, st.Dev, depth); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// entry adds one entry of the directory dir, which is on the file system dev.
func (m *meter) entry(dir int, name string, dev uint64, depth int) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	case st.Dev != dev:
		return nil
	}
	m.bytes += st.Blocks * 512
	switch {
	case st.Mode&record.TypeBits != unix.S_IFDIR:
		return nil
	case depth == rights.MaxDepth:
		m.left = -1
		return nil
	}
	return m.dir(dir, name, depth+1)
}

// LastUsed is when something last happened in the sandbox: its audit log was written.
func LastUsed(s *record.Sandbox) time.Time {
	used := s.Stored.CreatedAt
	if info, err := os.Stat(s.AuditPath()); err == nil && info.ModTime().After(used) {
		used = info.ModTime()
	}
	return used
}
