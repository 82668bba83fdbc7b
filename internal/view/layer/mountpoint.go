package layer

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// MountPoints returns Options.MountPoints.
func (s *Stack) MountPoints() []vpath.Path { return s.o.MountPoints }

func (s *Stack) isMountPoint(p vpath.Path) bool { return slices.Contains(s.o.MountPoints, p) }

// containsMountPoint reports whether one of the mount points is p or below p.
func (s *Stack) containsMountPoint(p vpath.Path) bool {
	return slices.ContainsFunc(s.o.MountPoints, func(point vpath.Path) bool { return point.Within(p) })
}

// busyPaths are paths on which others mount for a time; nil for none.
type busyPaths struct{ atomic.Pointer[[]vpath.Path] }

// SetBusy names the paths on which others mount for a time, in place of those named before: what is
// there can be neither removed nor replaced (EBUSY), and the directories above cannot be renamed.
// The kernel would end such a mount, and show what it covers. It may be called concurrently.
func (s *Stack) SetBusy(paths []vpath.Path) { s.busy.Store(&paths) }

// isBusy reports whether p is busy.
func (s *Stack) isBusy(p vpath.Path) bool {
	paths := s.busy.Load()
	return paths != nil && slices.Contains(*paths, p.Plain())
}

// containsBusy reports whether p or something below p is busy.
func (s *Stack) containsBusy(p vpath.Path) bool {
	paths := s.busy.Load()
	return paths != nil && slices.ContainsFunc(*paths, func(busy vpath.Path) bool { return busy.Within(p.Plain()) })
}

// absentMountPoint is the entry shown for a mount point where nothing is.
func (s *Stack) absentMountPoint(name string) entry {
	return entry{
		part: part{layer: s.bottom(), origin: Source, fd: -1}, stored: name,
		st: stat{mode: unix.S_IFDIR | 0o555, nlink: 1, mounted: true, rights: rights{bits: allRights}},
	}
}

// listMountPoints calls do for the mount points in v that no layer has.
func (s *Stack) listMountPoints(v *mergedDir, do func(child)) error {
	for _, p := range s.o.MountPoints {
		if p.Dir() != v.path {
			continue
		}
		_, err := s.findInLayers(v, p.Base(), top)
		if err == unix.ENOENT {
			e := s.absentMountPoint(p.Base())
			do(child{p.Base(), unix.S_IFDIR, s.sourceIno(p, &e.st), s.bottom()})
		} else if err != nil {
			return err
		}
	}
	return nil
}
