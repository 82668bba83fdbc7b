package cleangit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
	"github.com/agentfense/agentfense/internal/sandbox/gitindex"
	"github.com/agentfense/agentfense/internal/sandbox/gitrun"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Store is the directory of the host, in that of the sandbox, with its clean repository:
//
//	repository           as it was made; overlayfs shows it
//	upper, work          what commands changed in it, and overlayfs' own
//	commits, paths, info.json  about it
type Store string

// StoreIn returns the store of a sandbox with the directory dir.
func StoreIn(dir string) Store { return Store(filepath.Join(dir, "git")) }

// The directories of a Store.
const (
	repositoryDir = "repository"
	upperDir      = "upper"
	workDir       = "work"
)

// dirMode and fileMode are those inside, as git makes them.
const (
	dirMode  = 0o755
	fileMode = 0o644
)

// fill makes the store of what is in the directory made. The pack is linked, and the rest copied,
// because it is to be changed.
func (s Store) fill(m *Made) error {
	made, info := m.dir(), &m.Info
	repository := filepath.Join(string(s), repositoryDir)
	err := os.Mkdir(string(s), 0o700)
	for _, dir := range []string{"objects/pack", "objects/info", "refs/heads", "refs/tags", "info", "hooks"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(repository, dir), dirMode))
	}
	index, reading := m.index()
	if err = errors.Join(err, reading); err != nil {
		return err
	}
	head := info.Head + "\n"
	packed := "# pack-refs with: peeled fully-peeled sorted \n"
	if info.Branch != "" {
		head = "ref: " + info.Branch + "\n"
		packed += info.Head + " " + info.Branch + "\n"
	}
	for name, text := range map[string]string{"HEAD": head, "packed-refs": packed, "config": config(info), "info/exclude": m.excluded, "index": string(index)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(repository, name), []byte(text), fileMode))
	}
	pack := filepath.Join(repository, "objects/pack", info.Pack)
	err = errors.Join(err, linkOrCopy(filepath.Join(made, packFile), pack+".pack"), linkOrCopy(filepath.Join(made, packIndex), pack+".idx"))
	for _, name := range []string{commitsFile, pathsFile, infoFile} {
		err = errors.Join(err, linkOrCopy(filepath.Join(made, name), filepath.Join(string(s), name)))
	}
	return err
}

func linkOrCopy(from, to string) error {
	if err := os.Link(from, to); err == nil {
		return nil
	}
	dir, err := os.Open(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer dir.Close()
	return copyIn(dir, filepath.Base(from), to)
}

// config is the repository's configuration. Nothing of the source's is in it.
func config(info *Info) string {
	text := gitrun.FormatConfig(info.Head, "false") + "[core]\n\tfilemode = true\n\tlogallrefupdates = true\n"
	if info.Links { // their repositories are not shown
		text += "[diff]\n\tignoreSubmodules = all\n"
	}
	return text
}

// Info returns what the sandbox's repository is. Errors: Precondition.
func (s Store) Info() (*Info, error) {
	text, err := safefs.ReadRegularIn(string(s), infoFile, 1<<16)
	if err != nil {
		return nil, damaged(err)
	}
	var info Info
	if err := json.Unmarshal(text, &info); err != nil {
		return nil, damaged(err)
	}
	return &info, nil
}

func damaged(err error) error {
	return errdefs.New(errdefs.Precondition, "the sandbox's clean repository is damaged: %w; make another sandbox", err)
}

// maxPaths bounds the list of paths, in bytes.
const maxPaths = 1 << 30

// CheckChange refuses rules that hide something that the history shows. Errors: Precondition.
func (s Store) CheckChange(rules []policy.Rule, mode Mode) error {
	if !mode.IsClean() {
		return nil
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return err
	}
	text, err := safefs.ReadRegularIn(string(s), pathsFile, maxPaths)
	if err != nil {
		return damaged(err)
	}
	for name := range strings.SplitSeq(string(text), "\x00") {
		if path, ok := gitindex.TrackedPath(vpath.Root, name); ok && name != "" && !p.ShowsContent(path) {
			return errdefs.New(errdefs.Precondition, "%s: the sandbox's clean repository (--git=%s) has it already, so it can no longer be hidden; make another sandbox with these rules", path, mode)
		}
	}
	return nil
}

// Content are the open directories for overlayfs.
type Content struct{ Repository, Upper, Work *os.File }

// Close closes the directories.
func (c *Content) Close() {
	for _, f := range []*os.File{c.Repository, c.Upper, c.Work} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Open opens the repository for the sandbox's processes, which have the ids uid and gid.
func (s Store) Open(uid, gid int) (*Content, error) {
	parent, err := os.Open(string(s))
	if err != nil {
		return nil, damaged(err)
	}
	defer parent.Close()
	at := int(parent.Fd())
	// Overlayfs that is mounted volatile leaves a mark there, and refuses to be mounted again.
	if err := safefs.RemoveTreeAt(at, workDir); err != nil {
		return nil, hostError(err)
	}
	c := &Content{}
	if c.Work, err = openOrMake(at, workDir, os.Geteuid(), os.Getegid()); err == nil {
		c.Upper, err = openOrMake(at, upperDir, uid, gid)
	}
	if err == nil {
		c.Repository, err = openOrMake(at, repositoryDir, uid, gid)
	}
	if err == nil {
		err = own(c.Repository, uid, gid)
	}
	if err != nil {
		c.Close()
		return nil, hostError(err)
	}
	return c, nil
}

// openOrMake opens the directory name of parent. A new one belongs to uid and gid.
func openOrMake(parent int, name string, uid, gid int) (*os.File, error) {
	made := unix.Mkdirat(parent, name, dirMode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return nil, made
	}
	fd, err := safefs.OpenDir(parent, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if made == nil {
		err = errors.Join(f.Chown(uid, gid), f.Chmod(dirMode))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// own gives the repository, which only we write, to the ids, except for packs: they are shared with
// other sandboxes, and everybody may read them.
func own(repository *os.File, uid, gid int) error {
	root, err := os.OpenRoot(safefs.ProcPath(int(repository.Fd())))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(e.Name(), "pack-") {
			return err
		}
		if !e.IsDir() && !e.Type().IsRegular() {
			return errdefs.New(errdefs.Internal, "clean repository: %s is no file", e.Name())
		}
		mode := os.FileMode(fileMode)
		if e.IsDir() {
			mode = dirMode
		}
		return errors.Join(root.Lchown(path, uid, gid), root.Chmod(path, mode))
	})
}
