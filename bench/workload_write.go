package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

var (
	smallContent = fill(1<<10, 'a')
	blockContent = fill(4<<10, 'b')
)

func fill(n int, b byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = b
	}
	return p
}

func makeScratch(in *inside) error { return os.MkdirAll(in.scratch(), 0o755) }

// writeFile opens path with flags and writes p to it count times.
func writeFile(path string, flags int, p []byte, count int) error {
	return withFile(path, unix.O_WRONLY|flags, func(fd int) error { return writeTo(fd, p, count) })
}

func writeTo(fd int, p []byte, count int) error {
	for range count {
		n, err := unix.Write(fd, p)
		if err := whole("write", n, len(p), err); err != nil {
			return err
		}
	}
	return nil
}

// whole refuses a read or write that moved less than it was asked to.
func whole(op string, n, want int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", op, err)
	case n != want:
		return fmt.Errorf("%s: %d bytes, want %d", op, n, want)
	}
	return nil
}

func createFilesIn(dir string, count int) error {
	for i := range count {
		if err := writeFile(entry(dir, i), unix.O_CREAT|unix.O_EXCL, smallContent, 1); err != nil {
			return err
		}
	}
	return nil
}

func entry(dir string, i int) string { return fmt.Sprintf("%s/f%04d", dir, i) }

func createMany(in *inside) error { return createFilesIn(in.scratch(), createFiles) }

// makeEntries makes the files that unlink and rename take: new ones, known to
// the kernel.
func makeEntries(in *inside) error {
	if err := makeScratch(in); err != nil {
		return err
	}
	return createFilesIn(in.scratch(), entryFiles)
}

func unlinkEntries(in *inside) error { return unlinkAll(in.scratch(), entryFiles) }
func renameEntries(in *inside) error { return renameAll(in.scratch(), entryFiles) }

func unlinkAll(dir string, count int) error {
	for i := range count {
		if err := unix.Unlink(entry(dir, i)); err != nil {
			return &os.PathError{Op: "unlink", Path: entry(dir, i), Err: err}
		}
	}
	return nil
}

func renameAll(dir string, count int) error {
	for i := range count {
		if err := unix.Rename(entry(dir, i), entry(dir, i)+".new"); err != nil {
			return &os.PathError{Op: "rename", Path: entry(dir, i), Err: err}
		}
	}
	return nil
}

// onceDir holds source files that one workload may change once in a session.
func onceDir(work string) string { return treeOnce + "/" + work }

// statOnce makes the names known to the kernel, as they are to a program that
// has read the files before it changes them.
func statOnce(work string) func(*inside) error {
	return func(*inside) error {
		var st unix.Stat_t
		for i := range onceFiles {
			if err := unix.Lstat(entry(onceDir(work), i), &st); err != nil {
				return &os.PathError{Op: "stat", Path: entry(onceDir(work), i), Err: err}
			}
		}
		return nil
	}
}

func appendOnce(*inside) error {
	for i := range onceFiles {
		if err := writeFile(entry(onceDir("append"), i), unix.O_APPEND, smallContent[:100], 1); err != nil {
			return err
		}
	}
	return nil
}

func overwriteOnce(*inside) error {
	for i := range onceFiles {
		if err := writeFile(entry(onceDir("overwrite"), i), 0, blockContent, 1); err != nil {
			return err
		}
	}
	return nil
}

func unlinkOnce(*inside) error { return unlinkAll(onceDir("unlink"), onceFiles) }
func renameOnce(*inside) error { return renameAll(onceDir("rename"), onceFiles) }

// written is the one large file a workload writes; it is removed at once.
func (in *inside) written() string   { return in.scratch() + "/written" }
func removeWritten(in *inside) error { return os.Remove(in.written()) }

// writeSynced is what a database dump or a download does.
func writeSynced(in *inside) error {
	return withFile(in.written(), unix.O_WRONLY|unix.O_CREAT, func(fd int) error {
		if err := writeTo(fd, in.buf, bigBytes/len(in.buf)); err != nil {
			return err
		}
		return unix.Fsync(fd)
	})
}

func writeSmall(in *inside) error {
	return writeFile(in.written(), unix.O_CREAT, blockContent, (16<<20)/len(blockContent))
}
