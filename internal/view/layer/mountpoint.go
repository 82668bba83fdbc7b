package layer

import (
	"slices"

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
