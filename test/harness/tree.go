package harness

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Tree describes everything below dir, path to description: type and mode,
// owner, links, times of change and content. Two equal trees were not written
// to in between. It does not open what is no regular file.
func Tree(dir string) (map[string]string, error) {
	tree := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		var content string
		switch entry.Type() {
		case 0:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", sha256.Sum256(data))
		case fs.ModeSymlink:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		tree[path] = fmt.Sprintf("mode %o owner %d:%d links %d inode %d size %d modified %d changed %d %s",
			st.Mode, st.Uid, st.Gid, st.Nlink, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), content)
		return nil
	})
	return tree, err
}

// Untouched describes the source and returns what to call afterwards: it fails
// the test if anything of the source changed in between.
func (s *Sandbox) Untouched() (check func()) {
	s.t.Helper()
	before, err := Tree(s.Source)
	if err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		after, err := Tree(s.Source)
		if err != nil {
			s.t.Error(err)
		}
		for path, was := range before {
			if is, ok := after[path]; !ok {
				s.t.Errorf("%s is gone from the source", path)
			} else if is != was {
				s.t.Errorf("%s changed in the source:\nwas %s\nis  %s", path, was, is)
			}
		}
		for path := range after {
			if _, ok := before[path]; !ok {
				s.t.Errorf("%s appeared in the source", path)
			}
		}
	}
}
