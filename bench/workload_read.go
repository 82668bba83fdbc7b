package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// manyPaths are the 10,000 small files, relative to the root.
var manyPaths = sync.OnceValue(func() []string {
	paths := make([]string, manyFiles)
	for i := range paths {
		paths[i] = manyPath(i)
	}
	return paths
})

func openRead(in *inside) error {
	for i, p := range manyPaths() {
		n, err := readFile(p, in.buf)
		if err != nil {
			return err
		}
		if want := manySize(i); n != want {
			return fmt.Errorf("read %s: %d bytes, want %d", p, n, want)
		}
	}
	return nil
}

// readFile reads to the end, as cat does: one read more than the data needs.
func readFile(path string, buf []byte) (total int, err error) {
	err = withFile(path, unix.O_RDONLY, func(fd int) error {
		for {
			n, err := unix.Read(fd, buf)
			if err != nil || n == 0 {
				return err
			}
			total += n
		}
	})
	return total, err
}

// withFile opens path, calls do and closes it. It bypasses package os, whose
// poller adds system calls of its own.
func withFile(path string, flags int, do func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		err = firstOf(do(fd), unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func statFiles(*inside) error {
	var st unix.Stat_t
	for i, p := range manyPaths() {
		if err := unix.Lstat(p, &st); err != nil {
			return &os.PathError{Op: "stat", Path: p, Err: err}
		}
		if want := manySize(i); st.Size != int64(want) {
			return fmt.Errorf("stat %s: %d bytes, want %d", p, st.Size, want)
		}
	}
	return nil
}

func readDirectory(in *inside) error {
	for range flatRepeats {
		n, err := countEntries(treeFlat, in.buf[:32<<10])
		if err != nil {
			return err
		}
		if n != flatFiles {
			return fmt.Errorf("readdir: %d names, want %d", n, flatFiles)
		}
	}
	return nil
}

func countEntries(dir string, buf []byte) (total int, err error) {
	err = withFile(dir, unix.O_RDONLY|unix.O_DIRECTORY, func(fd int) error {
		for {
			n, err := unix.ReadDirent(fd, buf)
			if err != nil || n <= 0 {
				return err
			}
			_, count, _ := unix.ParseDirent(buf[:n], -1, nil)
			total += count
		}
	})
	return total, err
}

func walk(*inside) error    { return walkFiles(treeMany, manyFiles) }
func walkAll(*inside) error { return walkFiles(".", walkedFiles) }

// walkFiles lists each directory and stats each file.
func walkFiles(root string, want int) error {
	files := 0
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		_, err = d.Info()
		return err
	})
	if err == nil && files != want {
		return fmt.Errorf("walk: %d files, want %d", files, want)
	}
	return err
}

func readSequential(in *inside) error {
	n, err := readFile(treeBig, in.buf)
	return whole("read", n, bigBytes, err)
}

func readRandom(in *inside) error {
	random := rand.New(rand.NewPCG(seed, 0))
	return withFile(treeBig, unix.O_RDONLY, func(fd int) error {
		for range randomReads {
			block := random.Int64N(bigBytes / 4096)
			n, err := unix.Pread(fd, in.buf[:4096], block*4096)
			if err := whole("read", n, 4096, err); err != nil {
				return err
			}
		}
		return nil
	})
}

func readMapped(in *inside) error {
	return withFile(treeBig, unix.O_RDONLY, func(fd int) error {
		data, err := unix.Mmap(fd, 0, bigBytes, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for at := 0; at < len(data); at += len(in.buf) {
			copy(in.buf, data[at:])
		}
		return unix.Munmap(data)
	})
}

func grep(in *inside) error {
	out, err := in.run("grep", "-r", needle, treeMany)
	if err != nil {
		return err
	}
	if n := bytes.Count(out, []byte{'\n'}); n != manyFiles/needleEvery {
		return fmt.Errorf("grep: %d matches, want %d", n, manyFiles/needleEvery)
	}
	return nil
}

// find must stat each file to know its size.
func find(in *inside) error {
	out, err := in.run("find", treeMany, "-type", "f", "-size", "+0")
	if err != nil {
		return err
	}
	if n := bytes.Count(out, []byte{'\n'}); n != manyFiles {
		return fmt.Errorf("find: %d files, want %d", n, manyFiles)
	}
	return nil
}
