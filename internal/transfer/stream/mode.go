package stream

import "io/fs"

// The bits of st_mode on Linux (inode(7)), which may differ from those of the client's host.
const (
	typeMask = 0o170000
	typeDir  = 0o040000
	typeLink = 0o120000
	typeFile = 0o100000
	setUID   = 0o4000
	setGID   = 0o2000
	sticky   = 0o1000
)

// FileMode converts the st_mode of a message to Go's mode.
func FileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode) & fs.ModePerm
	switch mode & typeMask {
	case typeDir:
		m |= fs.ModeDir
	case typeLink:
		m |= fs.ModeSymlink
	case typeFile, 0:
	default:
		m |= fs.ModeIrregular
	}
	for bit, is := range map[uint32]fs.FileMode{setUID: fs.ModeSetuid, setGID: fs.ModeSetgid, sticky: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= is
		}
	}
	return m
}
