package gitcommit

import (
	"errors"
	"os"
	"path"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// elsewhere are the files of a repository that name another one, whose objects or refs git uses.
var elsewhere = map[string]bool{
	"commondir": true, "gitdir": true, "objects/info/alternates": true, "objects/info/http-alternates": true,
}

// leadsOut finds settings by which git reads files, or may keep refs, outside of the repository.
var leadsOut = regexp.MustCompile(`(?i)\[\s*include|refstorage`)

// maxConfig is how large a configuration may be, in bytes, and maxDepth how many directories of a
// repository may be in each other.
const (
	maxConfig = 1 << 20
	maxDepth  = 100
)

// CheckContained refuses a repository that is not wholly in the directory source, or leads out of
// it: git would write, or read, files for which the caller has no right. It looks at what the
// handle leads to, follows no link and enters no mount. Nobody else may change the source until git
// has ended. Errors: Precondition.
func CheckContained(source *os.File) error {
	var st unix.Stat_t
	err := unix.Fstatat(int(source.Fd()), ".git", &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errdefs.New(errdefs.Precondition, "the source has no directory .git: a server uses only the repository of a directory that is the top of the work tree")
	}
	return checkDir(int(source.Fd()), ".git", "", 0)
}

// checkDir checks the directory name of parent. at is its path in the repository.
func checkDir(parent int, name, at string, depth int) error {
	if depth > maxDepth {
		return notUsed(at, "more than %d directories are in each other", maxDepth)
	}
	dir, err := safefs.OpenDir(parent, name, unix.O_PATH|unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR):
		return notUsed(at, "it has just been replaced")
	case errors.Is(err, unix.EXDEV):
		return notUsed(at, "another file system is mounted there")
	case err != nil:
		return hostError(safefs.IgnoreAbsent(err))
	}
	defer unix.Close(dir)
	return safefs.ReadNames(dir, func(name []byte, mode uint32, _ uint64) error {
		return checkEntry(dir, string(name), path.Join(at, string(name)), mode, depth)
	})
}

// checkEntry checks the entry name of dir. mode has the bits of its type, 0 if it is not known.
func checkEntry(dir int, name, at string, mode uint32, depth int) error {
	if mode == 0 {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return hostError(safefs.IgnoreAbsent(err))
		}
		mode = st.Mode & unix.S_IFMT
	}
	switch {
	case mode != unix.S_IFDIR && mode != unix.S_IFREG:
		return notUsed(at, "a symbolic link or special file")
	case elsewhere[at]:
		return notUsed(at, "the repository uses another one")
	case at == "config" || at == "config.worktree":
		return checkConfig(dir, name)
	case mode == unix.S_IFDIR:
		return checkDir(dir, name, at, depth+1)
	}
	return nil
}

// checkConfig refuses a configuration that leads out of the repository.
func checkConfig(dir int, name string) error {
	text, err := safefs.ReadRegular(dir, name, maxConfig)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil
	case errdefs.Is(err, errdefs.Invalid):
		return notUsed(name, "%w", err)
	case err != nil:
		return hostError(err)
	case leadsOut.Match(text):
		return notUsed(name, "it includes other files, or sets extensions.refStorage")
	}
	return nil
}

// notUsed says why a file of a repository keeps a server from using it. Errors: Precondition.
func notUsed(at, why string, args ...any) error {
	return errdefs.New(errdefs.Precondition, ".git/%s: %w: a server does not use such a repository", vpath.Escape(at), errdefs.New(errdefs.Precondition, why, args...))
}

// containedSettings are further settings of a repository that CheckContained has passed.
var containedSettings = []string{"core.excludesFile=/dev/null", "core.attributesFile=/dev/null"}

// ActFor makes commits by another user than the caller, whose identity and files git then does not
// use. Without a name, no commit can be made.
func (r *Repository) ActFor(name, email string) {
	r.contained = true
	if name == "" {
		return // nothing is committed
	}
	for _, who := range []string{"GIT_AUTHOR_", "GIT_COMMITTER_"} {
		r.identity = append(r.identity, who+"NAME="+name, who+"EMAIL="+email)
	}
}
