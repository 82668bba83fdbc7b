package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// stagedAtOnce is how many files an apply stages before it places them.
const stagedAtOnce = 4096

// measureStaged is the least that an apply of files takes which places only what is durable, on
// native. It checks nothing and keeps no journal: it copies files without a name, makes them
// durable, gives them their names, makes these durable, and removes the originals.
func measureStaged(_ context.Context, p place) (float64, error) {
	native, ok := p.(*plain)
	if !ok || native.wrap != nil {
		return 0, errNotComparable
	}
	d := native.disk
	from, err := d.Fresh("staged")
	if err != nil {
		return 0, err
	}
	if err := copyTree(filepath.Join(d.Source(), treeMany), from); err != nil {
		return 0, err
	}
	to, err := d.Fresh("placed")
	if err != nil {
		return 0, err
	}
	return d.timeClean(func() error { return d.moveStaged(from, to) })
}

// moveStaged moves a tree of files to the directory to.
func (d *disk) moveStaged(from, to string) error {
	dirs, files, err := listTree(from)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(files, stagedAtOnce) {
		staged := make([]int, len(batch))
		err := atOnce(len(batch), func(i int) (err error) {
			staged[i], err = stageFile(filepath.Join(from, batch[i]), filepath.Dir(filepath.Join(to, batch[i])))
			return err
		})
		if err == nil {
			err = d.sync()
		}
		if err != nil {
			return err
		}
		err = atOnce(len(batch), func(i int) error {
			defer unix.Close(staged[i])
			return unix.Linkat(unix.AT_FDCWD, procPath(staged[i]), unix.AT_FDCWD, filepath.Join(to, batch[i]), unix.AT_SYMLINK_FOLLOW)
		})
		if err != nil {
			return err
		}
	}
	if err := d.sync(); err != nil {
		return err
	}
	err = atOnce(len(files), func(i int) error { return unix.Unlink(filepath.Join(from, files[i])) })
	return errors.Join(err, os.RemoveAll(from))
}

// listTree returns the directories and the files of a tree, relative to it.
func listTree(root string) (dirs, files []string, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if e.IsDir() {
			dirs = append(dirs, rel)
		} else {
			files = append(files, rel)
		}
		return err
	})
	return dirs, files, err
}

// stageFile copies a file to a new one without a name in the directory dir, and returns that open.
func stageFile(file, dir string) (staged int, err error) {
	src, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(src)
	var st unix.Stat_t
	if err := unix.Fstat(src, &st); err != nil {
		return -1, err
	}
	if staged, err = unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, st.Mode&0o777); err != nil {
		return -1, err
	}
	n, err := unix.CopyFileRange(src, nil, staged, nil, int(st.Size), 0)
	if err == nil && int64(n) != st.Size {
		err = errors.New(file + ": copied in part")
	}
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, procPath(staged), []unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}, 0)
	}
	if err != nil {
		unix.Close(staged)
	}
	return staged, err
}

func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// atOnce calls do for each number below n in as many goroutines as there are CPUs.
func atOnce(n int, do func(i int) error) error {
	failed := make([]error, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var group sync.WaitGroup
	for w := range failed {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed[w] == nil; i = next.Add(1) - 1 {
				failed[w] = do(int(i))
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
