package attack_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

// Every other call that moves, clones, punches or reads data needs the same permission as
// read(2) and write(2), or is refused.
func TestDataCalls(t *testing.T) {
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		eachHiding(t, func(t *testing.T, h hiding) { dataCalls(t, h, who...) })
	})
}

func dataCalls(t *testing.T, h hiding, who ...harness.Option) {
	s := harness.New(t, binary, map[string]string{
		"read": "readable", "view": "viewable", "secret.pem": "secret", "write": "writable", "r/x": "x", "w/x": "x",
	}, who...)
	untouched := s.Untouched()
	passes(t, s, moveData, h.args(), append(h.flags("*.pem"), "--preset", "full-access", "--read", "read", "--read", "r/", "--view", "view")...)
	untouched()
	if s.Denied("/read") == 0 || s.Denied("/secret.pem") == 0 {
		t.Errorf("refusals are missing in the audit log: %v", s.Denials())
	}
	agentfense(t, s, "apply", s.Name)
	for name, want := range map[string]string{"read": "readable", "view": "viewable", "secret.pem": "secret", "w/tmp": "tmp"} {
		if got := s.Read(name); got != want {
			t.Errorf("applied, %s holds %q, want %q", name, got, want)
		}
	}
}

var moveData = program("move data", func(in *inside, args []string) {
	read, err := unix.Open("read", unix.O_RDONLY, 0)
	in.works("open read", err)
	write, err := unix.Open("write", unix.O_RDWR, 0)
	in.works("open write", err)
	view, err := unix.Open("view", unix.O_PATH, 0)
	in.works("O_PATH view", err)

	for name, flags := range map[string]int{
		"O_TRUNC": unix.O_RDONLY | unix.O_TRUNC, "O_WRONLY": unix.O_WRONLY, "O_RDWR": unix.O_RDWR, "O_APPEND": unix.O_WRONLY | unix.O_APPEND,
		"O_CREAT": unix.O_CREAT | unix.O_WRONLY, "O_DIRECT": unix.O_WRONLY | unix.O_DIRECT, "both": unix.O_ACCMODE | unix.O_TRUNC,
	} {
		in.errno(name+" of read", opened("read", flags), unix.EACCES)
		in.errno(name+" of view", opened("view", flags), unix.EACCES)
	}
	intoReadOnly(in, read, write)
	outOfViewOnly(in, view, write)
	unnamed(in, hidingOf(args), read)
	byHandle(in)

	// What may be done keeps to the file it is done to.
	offset := int64(0)
	n, err := unix.CopyFileRange(read, &offset, write, nil, 4, 0)
	in.errno("copy from read to write", err, 0)
	in.is("copied", n, 4)
	in.errno("punch a hole in write", unix.Fallocate(write, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 2), 0)
	data, err := os.ReadFile("write")
	in.works("read", err)
	in.is("content of write", string(data), "\x00\x00adable")
	data, err = os.ReadFile("read")
	in.works("read", err)
	in.is("content of read", string(data), "readable")
})

// immutable is FS_IMMUTABLE_FL (linux/fs.h).
const immutable = 0x10

// intoReadOnly tries to change the file behind a descriptor for reading.
func intoReadOnly(in *inside, read, write int) {
	in.refused("clone into read", unix.IoctlFileClone(read, write), unix.EBADF, unix.EOPNOTSUPP, unix.ENOTTY)
	in.refused("clone a range into read", unix.IoctlFileCloneRange(read, &unix.FileCloneRange{Src_fd: int64(write)}),
		unix.EBADF, unix.EOPNOTSUPP, unix.ENOTTY)
	in.refused("deduplicate", unix.IoctlFileDedupeRange(write, &unix.FileDedupeRange{
		Src_length: 4, Info: []unix.FileDedupeRangeInfo{{Dest_fd: int64(read)}},
	}), unix.EINVAL, unix.EOPNOTSUPP, unix.ENOTTY, unix.EPERM)
	offset := int64(0)
	_, err := unix.CopyFileRange(write, &offset, read, nil, 4, 0)
	in.errno("copy into read", err, unix.EBADF)
	_, err = unix.Sendfile(read, write, &offset, 4)
	in.errno("sendfile into read", err, unix.EBADF)
	for name, mode := range map[string]uint32{
		"allocate": 0, "punch": unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, "collapse": unix.FALLOC_FL_COLLAPSE_RANGE,
		"zero": unix.FALLOC_FL_ZERO_RANGE, "insert": unix.FALLOC_FL_INSERT_RANGE,
	} {
		in.errno(name+" read", unix.Fallocate(read, mode, 0, 4096), unix.EBADF)
	}
	in.errno("ftruncate read", unix.Ftruncate(read, 0), unix.EINVAL)
	_, err = unix.Pwritev2(read, [][]byte{[]byte("x")}, 0, unix.RWF_APPEND)
	in.errno("pwritev2 read", err, unix.EBADF)
	_, err = unix.Mmap(read, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	in.errno("map read for writing", err, unix.EACCES)
	page, err := unix.Mmap(read, 0, 4, unix.PROT_READ, unix.MAP_SHARED)
	in.works("map read", err)
	in.errno("make the mapping writable", unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE), unix.EACCES)
	private, err := unix.Mmap(read, 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	in.works("map read privately", err)
	copy(private, "mine")
	flags, err := unix.IoctlGetInt(read, unix.FS_IOC_GETFLAGS)
	in.is("file flags", flags == 0 || err != nil, true)
	in.refused("set file flags", unix.IoctlSetPointerInt(read, unix.FS_IOC_SETFLAGS, immutable),
		unix.ENOTTY, unix.EOPNOTSUPP, unix.ENOSYS, unix.EPERM, unix.EACCES)
}

// outOfViewOnly tries to read the file behind an O_PATH descriptor.
func outOfViewOnly(in *inside, view, write int) {
	_, err := unix.Pread(view, make([]byte, 4), 0)
	in.errno("pread of view", err, unix.EBADF)
	for name, flags := range map[string]int{"read": unix.O_RDONLY, "write": unix.O_WRONLY, "truncate": unix.O_WRONLY | unix.O_TRUNC} {
		in.errno("open view again to "+name, opened(procFD(view), flags), unix.EACCES)
	}
	_, err = unix.CopyFileRange(view, nil, write, nil, 4, 0)
	in.errno("copy from view", err, unix.EBADF)
	in.refused("clone from view", unix.IoctlFileClone(write, view), unix.EBADF)
	_, err = unix.Mmap(view, 0, 4, unix.PROT_READ, unix.MAP_PRIVATE)
	in.errno("map view", err, unix.EBADF)
	in.errno("execute view", unix.Exec(procFD(view), []string{"x"}, nil), unix.EACCES)
}

// unnamed makes files without a name and gives them one.
func unnamed(in *inside, h hiding, read int) {
	give := func(fd int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, procFD(fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	}
	in.errno("O_TMPFILE in a directory to read", opened("r", unix.O_TMPFILE|unix.O_WRONLY), unix.EACCES)
	fd, err := unix.Open("w", unix.O_TMPFILE|unix.O_RDWR, 0o644|unix.S_ISUID)
	in.errno("O_TMPFILE", err, 0)
	_, err = unix.Write(fd, []byte("tmp"))
	in.errno("write it", err, 0)
	for _, hidden := range []string{"secret.pem", "absent.pem"} {
		fd, err := unix.Open("w", unix.O_TMPFILE|unix.O_RDWR, 0o644)
		in.errno("O_TMPFILE", err, 0)
		in.errno("link it to "+hidden, give(fd, hidden), h.making())
		if h == hidesOwn {
			in.errno("link the same to another", give(fd, "w/same"), unix.EXDEV)
		}
	}
	in.errno("link it to read", give(fd, "read"), unix.EEXIST)
	in.errno("link it into r", give(fd, "r/tmp"), unix.EACCES)
	in.errno("link it", give(fd, "w/tmp"), 0)
	in.errno("link read by its descriptor", give(read, "w/linked"), unix.EACCES)
	var st unix.Stat_t
	in.works("stat", unix.Stat("w/tmp", &st))
	in.is("mode of the linked file", st.Mode, uint32(unix.S_IFREG|0o644))
}

// byHandle tries to name files by number instead of by path.
func byHandle(in *inside) {
	handle, _, unhandled := unix.NameToHandleAt(unix.AT_FDCWD, "write", 0)
	in.refused("handle of write", unhandled, unix.EPERM, unix.EOPNOTSUPP, unix.ENOSYS, 0)
	for _, path := range []string{"secret.pem", "absent.pem", "absent"} {
		_, _, got := unix.NameToHandleAt(unix.AT_FDCWD, path, 0)
		in.refused("handle of "+path, got, unix.EPERM, unix.ENOSYS, unix.ENOENT)
	}
	mount, err := unix.Open(".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	in.works("open the workspace", err)
	for inode := range byte(100) {
		forged := unix.NewFileHandle(0x81, []byte{inode, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) // FUSE's, FILEID_INO64_GEN
		_, err := unix.OpenByHandleAt(mount, forged, unix.O_RDONLY)
		in.refused("open by a forged handle", err, unix.EPERM, unix.ENOSYS)
	}
	if unhandled == nil {
		_, err := unix.OpenByHandleAt(mount, handle, unix.O_RDONLY)
		in.refused("open by handle", err, unix.EPERM, unix.ENOSYS)
	}
}
