package scratch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/view/policy"
)

// Store is the directory of the host, in that of the sandbox, with what scratch directories
// contain. Each has a directory with the mode 0700, named by a hash of its path:
//
//	rules.json  the rules that may match a path in it, as they were at the first start
//	upper       what the sandbox made, in overlayfs' form (overlayfs.rst)
//	work        overlayfs' own, new with each start
//	empty       an empty directory, below upper where the view shows nothing
//
// Others than overlayfs never write to upper, so nobody inside can make a whiteout or an
// attribute that overlayfs obeys.
type Store string

// StoreIn returns the store of a sandbox with the directory dir.
func StoreIn(dir string) Store { return Store(filepath.Join(dir, "scratch")) }

const (
	upperDir  = "upper"
	workDir   = "work"
	emptyDir  = "empty"
	rulesFile = "rules.json"
)

// Content are the open directories of one scratch directory.
type Content struct {
	Path               Path
	Upper, Work, Empty *os.File
}

// Close closes the directories.
func (c *Content) Close() {
	for _, f := range []*os.File{c.Upper, c.Work, c.Empty} {
		if f != nil {
			_ = f.Close()
		}
	}
}

func (s Store) dir(path Path) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(string(s), hex.EncodeToString(sum[:16]))
}

// CheckRules refuses rules that could apply to the contents of the paths and are not those
// under which these were made: something that the sandbox could write then may be hidden
// now, and would still be shown. Errors: Precondition.
func (s Store) CheckRules(rules []policy.Rule, paths []Path) error {
	for _, path := range paths {
		stored, err := os.ReadFile(filepath.Join(s.dir(path), rulesFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has no contents
		}
		if err != nil {
			return failed(path, err)
		}
		now, err := rulesOf(rules, path)
		if err != nil {
			return err
		}
		if !bytes.Equal(stored, now) {
			return errdefs.New(errdefs.Precondition, "scratch directory %s: the rules for paths in it cannot be changed after its first start; "+
				"change other rules only, or make another sandbox", path)
		}
	}
	return nil
}

// CheckChange refuses rules that paths, with or without contents, must not have. Errors:
// those of CheckPolicy and CheckRules.
func (s Store) CheckChange(rules []policy.Rule, paths []Path) error {
	if len(paths) == 0 {
		return nil
	}
	p, err := policy.Compile(rules, policy.Options{})
	if err != nil {
		return err
	}
	if err := CheckPolicy(p, paths); err != nil {
		return err
	}
	return s.CheckRules(rules, paths)
}

func rulesOf(rules []policy.Rule, path Path) ([]byte, error) {
	below, err := policy.RulesBelow(rules, path.At())
	if err != nil {
		return nil, err
	}
	return json.Marshal(below)
}

// Open opens the contents of path, which it makes if they are absent. The sandbox's
// processes have the ids uid and gid. Errors: those of CheckRules.
func (s Store) Open(path Path, rules []policy.Rule, uid, gid int) (*Content, error) {
	if err := s.CheckRules(rules, []Path{path}); err != nil {
		return nil, err
	}
	dir := s.dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, failed(path, err)
	}
	if err := keepRules(dir, rules, path); err != nil {
		return nil, err
	}
	parent, err := os.Open(dir)
	if err != nil {
		return nil, failed(path, err)
	}
	defer parent.Close()
	c := &Content{Path: path}
	// Overlayfs that is mounted volatile leaves a mark there, and refuses to be mounted again.
	if err := safefs.RemoveTreeAt(int(parent.Fd()), workDir); err != nil {
		return nil, failed(path, err)
	}
	for name, to := range map[string]**os.File{workDir: &c.Work, emptyDir: &c.Empty} {
		if err == nil {
			*to, err = openOrMake(parent, name, os.Geteuid(), os.Getegid())
		}
	}
	if err == nil {
		c.Upper, err = openOrMake(parent, upperDir, uid, gid)
	}
	if err != nil {
		c.Close()
		return nil, failed(path, err)
	}
	return c, nil
}

// keepRules stores the rules before there is something that they are about.
func keepRules(dir string, rules []policy.Rule, path Path) error {
	if _, err := os.Lstat(filepath.Join(dir, rulesFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := rulesOf(rules, path)
	if err != nil {
		return err
	}
	if err := safefs.WriteDurably(dir, rulesFile, text); err != nil {
		return failed(path, err)
	}
	return nil
}

// upperMode is the mode of a new scratch directory inside.
const upperMode = 0o755

// openOrMake opens the directory name of parent. A new one belongs to uid and gid.
func openOrMake(parent *os.File, name string, uid, gid int) (*os.File, error) {
	at := int(parent.Fd())
	made := unix.Mkdirat(at, name, upperMode)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return nil, made
	}
	fd, err := safefs.OpenDir(at, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if made == nil {
		err = errors.Join(f.Chown(uid, gid), f.Chmod(upperMode))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func failed(path Path, err error) error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return errdefs.New(safefs.Kind(err), "scratch directory %s: its contents: %w", path, err)
}
