package attack_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// A pipe with pages of a read-only file must not be a way to write to them (CVE-2022-0847).
// Even with such a kernel bug, only pages of this sandbox's mount are affected: the view
// never passes the source's files through to the kernel, so the source stays unchanged.
func TestPipesDoNotWriteToReadFiles(t *testing.T) {
	content := strings.Repeat("the source's\n", 1000)
	s := harness.New(t, binary, map[string]string{"f": content})
	untouched := s.Untouched()
	passes(t, s, dirtyPipe, nil, "--preset", "read-only")
	untouched()
	if got := s.Read("f"); got != content {
		t.Error("the source's content changed")
	}
	other := harness.New(t, binary, nil)
	other.Source = s.Source
	prints(t, other, "head -n 1 f", "the source's\n", "--preset", "read-only")
}

var dirtyPipe = program("dirty pipe", func(in *inside, _ []string) {
	before, err := os.ReadFile("f")
	in.works("read", err)
	fd, err := unix.Open("f", unix.O_RDONLY, 0)
	in.works("open", err)
	var pipe [2]int
	in.works("pipe", unix.Pipe(pipe[:]))
	size, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_GETPIPE_SZ, 0)
	in.works("size of the pipe", err)
	// Filling and draining it leaves every buffer marked as one to append to.
	buf := make([]byte, size)
	_, err = unix.Write(pipe[1], buf)
	in.works("fill", err)
	_, err = unix.Read(pipe[0], buf)
	in.works("drain", err)
	for at := int64(0); at < 8192; at += 4096 {
		offset := at
		n, err := unix.Splice(fd, &offset, pipe[1], nil, 1, 0)
		in.works("splice", err)
		in.is("spliced", n, int64(1))
		_, err = unix.Write(pipe[1], []byte("the attacker's"))
		in.works("write", err)
	}
	after, err := os.ReadFile("f")
	in.works("read", err)
	in.is("content unchanged", string(after) == string(before), true)
	// The other way round takes a descriptor that may write.
	offset := int64(0)
	_, err = unix.Splice(pipe[0], nil, fd, &offset, 1, 0)
	in.errno("splice into the file", err, unix.EBADF)
	_, err = unix.Tee(fd, pipe[1], 1, 0)
	in.errno("tee from the file", err, unix.EINVAL)
})
