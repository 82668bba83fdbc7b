package narrow

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

// remove removes the points that are still as they were made, the inner ones first.
func (w *work) remove() error {
	roots := map[int]int{}
	for _, p := range slices.Backward(w.job.Remove) {
		if p.Area < 0 || p.Area >= len(w.job.Areas) {
			return errdefs.New(errdefs.Internal, "inner sandbox: no area %d", p.Area)
		}
		if _, opened := roots[p.Area]; !opened {
			root, err := unix.Open(string(w.job.Areas[p.Area].From), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return internal(err)
			}
			roots[p.Area] = root
		}
		w.becomeUser()
		err := removePoint(roots[p.Area], p)
		w.becomeSelf()
		if err != nil {
			return errdefs.New(errdefs.Denied, "remove the empty %s: %w", p.Path, err)
		}
	}
	return nil
}

// removePoint removes one point. What is gone, or is another's by now, stays as it is.
func removePoint(root int, p Point) error {
	above, name := path.Split(string(p.Path))
	dir := root
	if above != "" {
		var err error
		if dir, err = open(root, strings.TrimSuffix(above, "/"), unix.O_DIRECTORY); err != nil {
			return unlessGone(err)
		}
		defer unix.Close(dir)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return unlessGone(err)
	}
	if st.Ino != p.Ino || (st.Mode&unix.S_IFMT == unix.S_IFDIR) != p.Dir || !p.Dir && st.Size != 0 {
		return nil
	}
	flags := 0
	if p.Dir {
		flags = unix.AT_REMOVEDIR
	}
	return unlessGone(unix.Unlinkat(dir, name, flags))
}

func unlessGone(err error) error {
	for _, gone := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ENOTEMPTY} {
		if errors.Is(err, gone) {
			return nil
		}
	}
	return err
}
