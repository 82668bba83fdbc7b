package gitcommit

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// elsewhere are the files of a repository that name another one, whose objects or refs git uses.
var elsewhere = map[string]bool{
	"commondir": true, "gitdir": true, "objects/info/alternates": true, "objects/info/http-alternates": true,
}

// leadsOut finds settings by which git reads files, or may keep refs, outside of the repository.
var leadsOut = regexp.MustCompile(`(?i)\[\s*include|refstorage`)

// maxConfig is how large a configuration may be, in bytes.
const maxConfig = 1 << 20

// CheckContained refuses a repository that is not wholly in the directory source, or leads out of
// it: git would write, or read, files for which the caller has no right. Nobody else may change the
// source until git has ended. Errors: Precondition.
func CheckContained(source string) error {
	dir := filepath.Join(source, ".git")
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return errdefs.New(errdefs.Precondition, "the source has no directory .git: a server uses only the repository of a directory that is the top of the work tree")
	}
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return hostError(err)
		}
		name, err := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return hostError(err)
		case !e.IsDir() && !e.Type().IsRegular():
			return errdefs.New(errdefs.Precondition, ".git/%s: a symbolic link or special file: a server does not use such a repository", vpath.Escape(name))
		case elsewhere[name]:
			return errdefs.New(errdefs.Precondition, ".git/%s: the repository uses another one: a server does not use such a repository", vpath.Escape(name))
		case name == "config" || name == "config.worktree":
			return checkConfig(path, name)
		}
		return nil
	})
}

// checkConfig refuses a configuration that leads out of the repository.
func checkConfig(path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return hostError(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return hostError(err)
	case len(text) > maxConfig || leadsOut.Match(text):
		return errdefs.New(errdefs.Precondition, ".git/%s: it is larger than 1 MiB, includes other files, or sets extensions.refStorage: a server does not use such a repository", name)
	}
	return nil
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
