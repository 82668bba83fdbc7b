package layer

import (
	"golang.org/x/sys/unix"
)

// walkStored calls do for each file below the delta directory root, which is
// itself left out. It holds one descriptor at a time, whatever the depth.
func walkStored(root int, do func(rel string, st *stat) error) error {
	pending := []string{"."}
	for len(pending) > 0 {
		rel := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		dirs, err := walkOne(root, rel, do)
		if err != nil {
			return err
		}
		pending = append(pending, dirs...)
	}
	return nil
}

// walkOne visits the files of one directory and returns the directories.
func walkOne(root int, rel string, do func(rel string, st *stat) error) (dirs []string, err error) {
	fd, err := openDirAt(root, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	err = readNames(fd, func(name []byte, _ uint32, _ uint64) error {
		st, err := statAt(fd, string(name))
		if err != nil {
			return err
		}
		below := string(name)
		if rel != "." {
			below = rel + "/" + below
		}
		if st.isDir() {
			dirs = append(dirs, below)
		}
		return do(below, &st)
	})
	return dirs, err
}
