package history

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/changes"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/record"
	"github.com/agentfense/agentfense/internal/view/layer"
)

// Step is what a transaction does at one path.
type Step struct {
	Path   string  `json:"path"`             // escaped with vpath.Escape
	Before *Entity `json:"before,omitempty"` // nil: nothing is there
	After  *Entity `json:"after,omitempty"`
	// Linked says that the file before has other names, which must not share its inode with the
	// image.
	Linked bool `json:"linked,omitempty"`
	// Moved says that the source's entry was not what the sandbox saw, in the apply or in the one
	// that is reversed. So it must not become the base of a version of the sandbox that does not
	// have its changes.
	Moved bool `json:"moved,omitempty"`
	// Implied says that the step is of a directory that no review lists: a step below tells of it.
	Implied bool `json:"implied,omitempty"`
	// Left says that the step was not executed.
	Left bool `json:"-"`
}

// At returns the path of the step. Errors: Invalid if it is not escaped.
func (s *Step) At() (vpath.Path, error) {
	text, err := vpath.Unescape(s.Path)
	if err != nil {
		return "", err
	}
	return vpath.Parse(text)
}

// Status returns how the path changes.
func (s *Step) Status() changes.Status {
	switch {
	case s.Before == nil:
		return changes.Added
	case s.After == nil:
		return changes.Deleted
	case s.Before.Mode&record.TypeBits != s.After.Mode&record.TypeBits:
		return changes.Retyped
	}
	return changes.Modified
}

// isModeOnly reports whether only the mode of a file changes, in place.
func (s *Step) isModeOnly() bool {
	return s.Before != nil && s.After != nil && s.Before.Ino != 0 && s.Before.Ino == s.After.Ino && !s.Before.IsDir() && s.Status() == changes.Modified
}

// hasImage reports whether the step replaces or removes an entry of which the previous version is
// kept.
func (s *Step) hasImage() bool {
	return s.Before != nil && !s.Before.IsDir() && !s.isModeOnly()
}

// Entity is an entry of a source.
type Entity struct {
	Mode uint32 `json:"mode"`
	// Dev and Ino are 0 if it is not known which file it will be.
	Dev  uint64 `json:"dev,omitempty"`
	Ino  uint64 `json:"ino,omitempty"`
	UID  uint32 `json:"uid,omitempty"`
	GID  uint32 `json:"gid,omitempty"`
	Size int64  `json:"size,omitempty"`
	// Blocks is what a file takes on the disk, in blocks of 512 bytes as in stat(2): less than Size
	// if it has holes. 0 if it is not known.
	Blocks int64         `json:"blocks,omitempty"`
	Mtime  unix.Timespec `json:"mtime"`
	Ctime  unix.Timespec `json:"ctime,omitzero"`   // of a replaced entry that is no directory
	Target string        `json:"target,omitempty"` // of a symbolic link, escaped
	SHA256 string        `json:"sha256,omitempty"` // of the content, if it was computed
	// Index is the gitindex.Index.Sum of an index of git, in hex: git also writes it anew without a
	// change that matters.
	Index string `json:"index,omitempty"`
}

// IsDir reports whether it is a directory.
func (a *Entity) IsDir() bool { return a != nil && record.IsDir(a.Mode) }

// isRegular reports whether it is a regular file.
func (a *Entity) isRegular() bool { return a != nil && a.Mode&record.TypeBits == unix.S_IFREG }

// EntityOf describes the entry e, as st has its attributes. It returns nil for none.
func EntityOf(e changes.Entry, st *unix.Stat_t) (*Entity, error) {
	if st == nil {
		return nil, nil
	}
	a := &Entity{Mode: st.Mode, Dev: st.Dev, Ino: st.Ino, UID: st.Uid, GID: st.Gid, Mtime: st.Mtim, Ctime: st.Ctim, Size: st.Size, Blocks: st.Blocks}
	if a.IsDir() {
		a.Size, a.Blocks, a.Mtime, a.Ctime = 0, 0, unix.Timespec{}, unix.Timespec{} // they change with what is in it
	}
	if st.Mode&record.TypeBits == unix.S_IFLNK {
		target, err := e.Target()
		if err != nil {
			return nil, err
		}
		a.Target = vpath.Escape(target)
	}
	return a, nil
}

// Matches reports whether now, which e shows, is a: the same unchanged file, if that is known, else
// one with the same attributes. A directory that still has the bits with which it is filled is
// the same.
func (a *Entity) Matches(e changes.Entry, now *unix.Stat_t) bool {
	switch {
	case a == nil || now == nil:
		return a == nil && now == nil
	case a.Mode&record.TypeBits != now.Mode&record.TypeBits:
		return false
	case a.IsDir():
		is := now.Mode & record.StickyBits
		return is == a.Mode&record.StickyBits || is == (a.Mode|changes.OwnerBits)&record.StickyBits
	case a.Mode&record.TypeBits == unix.S_IFLNK:
		target, err := e.Target()
		return err == nil && vpath.Escape(target) == a.Target
	}
	return a.Mode == now.Mode && a.Size == now.Size && a.Mtime == now.Mtim && a.isSameFile(now)
}

// isSameFile compares the identities. It ignores device numbers with major 0, which change with
// each mount.
func (a *Entity) isSameFile(now *unix.Stat_t) bool {
	if a.Ino == 0 {
		return true
	}
	return a.Ino == now.Ino && (a.Dev == now.Dev || unix.Major(a.Dev) == 0 && unix.Major(now.Dev) == 0)
}

// HasContent reports whether now, a regular file that e shows, has the recorded content, type and
// mode, whichever file it is.
func (a *Entity) HasContent(e changes.Entry, now *unix.Stat_t) bool {
	if !a.isRegular() || now == nil || a.SHA256 == "" || a.Mode != now.Mode || a.Size != now.Size {
		return false
	}
	sum, err := sumOf(e, a.Size)
	return err == nil && sum == a.SHA256
}

// isIndex reports whether now, which e shows, is an index that is equivalent to the recorded one.
func (a *Entity) isIndex(e changes.Entry, now *unix.Stat_t) bool {
	if a == nil || a.Index == "" || now == nil || now.Mode != a.Mode {
		return false
	}
	sum, err := SumOfIndex(e)
	return err == nil && sum == a.Index
}

// SumOfIndex returns what Entity.Index has for an entry. Errors: those of gitindex.Read and of the
// host.
func SumOfIndex(e changes.Entry) (string, error) {
	f, err := e.OpenFile()
	if err != nil {
		return "", err
	}
	defer f.Close()
	x, err := gitindex.Read(f)
	if err != nil {
		return "", err
	}
	sum := x.Sum()
	return hex.EncodeToString(sum[:]), nil
}

// sumOf returns the hash of the first bytes of a file, in hex.
func sumOf(e changes.Entry, size int64) (string, error) {
	f, err := e.OpenFile()
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, size+1)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// isBase reports whether b describes the entry as it was.
func (a *Entity) isBase(b *layer.Base) bool {
	return a.isSameFile(&unix.Stat_t{Dev: b.Dev, Ino: b.Ino}) && b.Mode == a.Mode && b.Size == a.Size &&
		b.Mtime == a.Mtime && b.Ctime == a.Ctime
}
