package extremes_test

import (
	"archive/tar"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

var largeBytes = flag.Int64("extremes.large", 64<<20+1, "size in bytes of the file of TestLargeFileWithHoles")

const (
	blockBytes = 4096
	// largeRSS bounds the memory of a command, whatever the size of a file.
	largeRSS = 128 << 10
	// storedBytes bounds what a file with little data takes on the disk.
	storedBytes = 1 << 20
)

// A large file that is changed inside goes through the verbs with little memory, keeps its holes
// in the delta and in the source, and is right to the byte.
func TestLargeFileWithHoles(t *testing.T) {
	s := harness.New(t, binary, map[string]string{"large": "begin"})
	source := filepath.Join(s.Source, "large")
	middle, end := *largeBytes/2/blockBytes*blockBytes, *largeBytes-1
	writeAt(t, source, middle, "old")
	writeAt(t, source, end, "e")
	old := data(t, source)

	run := func(args ...string) string {
		t.Helper()
		out, used := must(t, s, args...)
		t.Logf("%s: %v, %d MiB", args[0], used.time, used.rssKiB>>10)
		if used.rssKiB > largeRSS {
			t.Errorf("agentfense %q took %d KiB of memory, want at most %d", args, used.rssKiB, largeRSS)
		}
		return out
	}
	inside := "printf new | dd of=large bs=4096 seek=" + strconv.FormatInt(middle/blockBytes, 10) + " conv=notrunc status=none; printf more >> large"
	run("run", "--name", s.Name, "--preset", "full-access", "--", "sh", "-c", inside)
	if out := run("diff", s.Name, "--stat"); !strings.Contains(out, strconv.FormatInt(*largeBytes+4, 10)+" bytes") {
		t.Errorf("diff --stat does not show the new size:\n%s", out)
	}
	run("snapshot", s.Name)
	run("fork", s.Name, "forked")
	run("create", "merged", "--preset", "full-access")
	run("merge", "forked", "--into", "merged")
	archive := filepath.Join(t.TempDir(), "large.tar")
	run("export", "merged", archive, "--format", "tar")
	now := map[int64]string{0: block("begin"), middle: block("new"), end / blockBytes * blockBytes: old[end/blockBytes*blockBytes]}
	writeTail(now, end+1, "more")
	same(t, "export --format tar", archived(t, archive), byOffset(now))
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	run("apply", "merged", "--latest")
	same(t, "apply", byOffset(data(t, source)), byOffset(now))
	run("undo", "merged", "--yes")
	same(t, "undo", byOffset(data(t, source)), byOffset(old))
}

func writeAt(t *testing.T, path string, at int64, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(text), at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// block returns text in a block of zeros.
func block(text string) string { return text + strings.Repeat("\x00", blockBytes-len(text)) }

// writeTail writes text at the end of a file, which may be in two blocks.
func writeTail(blocks map[int64]string, at int64, text string) {
	for i := range len(text) {
		offset := at + int64(i)
		first := offset / blockBytes * blockBytes
		content := []byte(blocks[first])
		if len(content) == 0 {
			content = []byte(block(""))
		}
		content[offset-first] = text[i]
		blocks[first] = string(content)
	}
}

// byOffset has the blocks by their offsets in decimal.
func byOffset(blocks map[int64]string) map[string]string {
	named := map[string]string{}
	for at, content := range blocks {
		named[strconv.FormatInt(at, 10)] = content
	}
	return named
}

// data returns the blocks of a file that are not zero. It fails the test if the file has no holes.
func data(t *testing.T, path string) map[int64]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks*512 > storedBytes {
		t.Errorf("%s takes %d bytes on the disk: its holes are gone", filepath.Base(path), st.Blocks*512)
	}
	found := map[int64]string{}
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if at, err = unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE); err != nil {
			t.Fatal(err)
		}
		addBlocks(t, found, io.NewSectionReader(f, from, at-from), from)
	}
}

// addBlocks adds the blocks of r that are not zero, of which the first is at an offset.
func addBlocks(t *testing.T, found map[int64]string, r io.Reader, at int64) {
	t.Helper()
	zero := block("")
	for {
		content := make([]byte, blockBytes)
		n, err := io.ReadFull(r, content)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if string(content) != zero {
			found[at] = string(content)
		}
		at += int64(n)
	}
}

// archived returns the blocks that are not zero of the one file of an archive.
func archived(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := tar.NewReader(f)
	h, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	if h.Size != *largeBytes+int64(len("more")) {
		t.Errorf("the archive has a file of %d bytes", h.Size)
	}
	found := map[int64]string{}
	addBlocks(t, found, r, 0)
	return byOffset(found)
}
