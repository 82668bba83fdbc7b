package changes

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// notPlaced is the reason for a change that the view permits but an apply cannot make: the
// view changes a file in place, while an apply replaces it.
const notPlaced = "you may not replace files in its directory, which belongs to another user; read the content in the sandbox and write it into the file"

// CannotPlace returns the reason why this user cannot apply the change, or "" if none is
// known.
func (w *Work) CannotPlace(c *Change) string {
	if os.Geteuid() == 0 || c.Status == 0 || c.Status == Modified && (record.IsDir(c.Info.Mode) || c.SameContent) || c.Path.IsRoot() {
		return ""
	}
	refused := false
	_ = w.Tree.At(c.Path, func(e Entry) error { // the apply itself reports other obstacles
		refused = isClosedToUs(e)
		return nil
	})
	if refused {
		return notPlaced
	}
	return ""
}

// isClosedToUs reports whether another user's directory prevents this user from replacing
// the entry: this user may not write the directory, or it is sticky and the entry belongs
// to another user (inode(7)).
func isClosedToUs(e Entry) bool {
	var dir, file unix.Stat_t
	me := uint32(os.Geteuid())
	switch {
	case unix.Fstatat(e.Dir, "", &dir, unix.AT_EMPTY_PATH) != nil, dir.Uid == me:
		return false
	case unix.Faccessat(e.Dir, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS) == unix.EACCES:
		return true
	}
	return dir.Mode&unix.S_ISVTX != 0 && unix.Fstatat(e.Dir, e.Name, &file, unix.AT_SYMLINK_NOFOLLOW) == nil && file.Uid != me
}
