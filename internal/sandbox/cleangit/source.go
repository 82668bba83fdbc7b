package cleangit

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/githistory"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
)

const branches = "refs/heads/"

// Source is the repository of a source, open.
type Source struct {
	dir          *os.File
	Objects      *os.File // its directory of objects
	owner, group uint32   // of .git
	Head         string   // the commit
	branch       string   // the ref that is checked out, "" if none is
	Shallow      []string // the commits at which a shallow history ends
	Refs         githistory.Refs
}

// Close closes the repository.
func (s *Source) Close() {
	for _, f := range []*os.File{s.dir, s.Objects} {
		if f != nil {
			f.Close()
		}
	}
}

// Credential is the owner of the repository, for whom root runs git; nil for the caller.
func (s *Source) Credential() *syscall.Credential { return OwnerToRun(s.owner, s.group) }

// OwnerToRun is the user for whom root runs git; nil for the caller.
func OwnerToRun(uid, gid uint32) *syscall.Credential {
	if os.Geteuid() == 0 && uid != 0 {
		return &syscall.Credential{Uid: uid, Gid: gid}
	}
	return nil
}

// files are those of a repository in which the ref gitrun.HeadRef is the head.
func (s *Source) files() map[string]string {
	files := map[string]string{gitrun.HeadRef: s.Head + "\n"}
	if len(s.Shallow) > 0 {
		files["shallow"] = strings.Join(s.Shallow, "\n") + "\n"
	}
	return files
}

// OpenSource opens the repository at the root of the directory workspace. Errors: Precondition with
// the reason for one of which no clean repository can be made.
func OpenSource(workspace *os.File) (*Source, error) {
	var st unix.Stat_t
	err := unix.Fstatat(int(workspace.Fd()), ".git", &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, errdefs.New(errdefs.Precondition, "the source has no .git directory: name the top directory of the work tree")
	case err != nil:
		return nil, errdefs.New(safefs.Kind(err), "git: .git: %w", err)
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		return nil, errdefs.New(errdefs.Precondition, "the source is a linked work tree or a submodule, with the repository in another directory; use a clone of it")
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil, errdefs.New(errdefs.Precondition, ".git is no directory")
	}
	if uid := uint32(os.Geteuid()); uid != 0 && st.Uid != uid {
		return nil, errdefs.New(errdefs.Precondition, "the repository belongs to uid %d: make the sandbox as that user", st.Uid)
	}
	s := &Source{owner: st.Uid, group: st.Gid}
	if s.dir, err = openDir(workspace, ".git"); err == nil {
		err = s.readHead()
	}
	if err == nil {
		s.Objects, err = openDir(s.dir, "objects")
	}
	if err == nil {
		err = s.checkAlternates()
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// maxAlternates bounds the source's list of alternates, which git reads, in bytes.
const maxAlternates = 64 << 10

// checkAlternates refuses a list of alternates on which git would block, or that would fill its
// memory.
func (s *Source) checkAlternates() error {
	_, err := safefs.ReadRegular(int(s.Objects.Fd()), "info/alternates", maxAlternates)
	if err != nil && !isAbsent(err) {
		return errdefs.New(errdefs.Precondition, "objects/info/alternates: %w", err)
	}
	return nil
}

func openDir(parent *os.File, name string) (*os.File, error) {
	fd, err := safefs.OpenDir(int(parent.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, errdefs.New(errdefs.Precondition, "%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readHead reads what is checked out.
func (s *Source) readHead() error {
	dir := int(s.dir.Fd())
	refs, err := githistory.ReadRefs(dir)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "%w", err)
	}
	if s.branch, _, err = githistory.ReadHead(dir); err != nil {
		return errdefs.New(errdefs.Precondition, "HEAD: %w", err)
	}
	s.Refs, s.Head = refs, refs["HEAD"]
	switch {
	case s.Head == "":
		return errdefs.New(errdefs.Precondition, "the source has no commit yet, or HEAD cannot be read")
	case s.branch != "" && !strings.HasPrefix(s.branch, branches):
		return errdefs.New(errdefs.Precondition, "HEAD is no branch")
	}
	s.Shallow, err = githistory.ReadShallow(dir)
	if err != nil {
		return errdefs.New(errdefs.Precondition, "shallow: %w", err)
	}
	return nil
}
