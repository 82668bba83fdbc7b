package cleangit

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// What a list of alternates may be, which git reads: bytes, and lists that lead to each other
// (link_alt_odb_entries, object-file.c).
const (
	maxAlternates     = 64 << 10
	maxAlternateLists = 5
)

// checkAlternates refuses alternates, also of alternates, that belong to another user than the
// repository's owner or root, and a list on which git would block, or that would fill its memory.
// Git skips an alternate that is absent. Errors: Precondition.
func (s *Source) checkAlternates(objects *os.File, depth int) error {
	text, err := safefs.ReadRegular(int(objects.Fd()), "info/alternates", maxAlternates)
	if isAbsent(err) {
		return nil
	}
	if err == nil && depth > maxAlternateLists {
		err = errdefs.New(errdefs.Precondition, "more than %d lists lead to each other", maxAlternateLists)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if err == nil && line != "" && line[0] != '#' {
			err = s.checkAlternate(objects, line, depth)
		}
	}
	if err != nil && depth == 0 {
		return errdefs.New(errdefs.Precondition, "objects/info/alternates: %w", err)
	}
	return err
}

func (s *Source) checkAlternate(objects *os.File, path string, depth int) error {
	if path[0] == '"' {
		unquoted, err := strconv.Unquote(path)
		if err != nil {
			return errdefs.New(errdefs.Precondition, "the line %s is malformed", vpath.Escape(path))
		}
		path = unquoted
	}
	// The user's own links are followed, as git follows them.
	fd, err := unix.Openat(int(objects.Fd()), path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return errdefs.New(errdefs.Precondition, "%s: %w", vpath.Escape(path), err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return hostError(err)
	}
	if st.Uid != s.owner && st.Uid != 0 {
		return errdefs.New(errdefs.Precondition, "%s belongs to uid %d, who is not the owner of the repository: clone it without --shared and --reference", vpath.Escape(path), st.Uid)
	}
	return s.checkAlternates(dir, depth+1)
}
