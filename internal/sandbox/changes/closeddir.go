package changes

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/sandbox/record"
)

// notPlaced is why an apply cannot take a change that the view lets a command make:
// a file is changed in place there, and an apply puts another in its place.
const notPlaced = "its directory is another user's, who does not let you replace what is in it; take the content from here (agentfense files cat) and write it into the file yourself"

// CannotPlace says why an apply as this user cannot take the change, "" if nothing is
// known to be in its way.
func (w *Work) CannotPlace(c *Change) string {
	if os.Geteuid() == 0 || c.Status == 0 || c.Status == Modified && (record.IsDir(c.Info.Mode) || c.SameContent) || c.Path.IsRoot() {
		return ""
	}
	refused := false
	_ = w.Tree.At(c.Path, func(e Entry) error { // what else is in the way the apply says
		refused = isClosedToUs(e)
		return nil
	})
	if refused {
		return notPlaced
	}
	return ""
}

// isClosedToUs reports whether another user's directory does not let us replace the
// entry: we may not write it, or it is sticky and the entry is not ours (inode(7)).
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
