// Package bundle keeps two programs in one file: the command line with the
// supervisor and PID 1, which run once for each sandbox and must stay light, and
// behind it the server, whose libraries cost each process that has them linked
// in four megabytes and some milliseconds at its start.
//
// The file is the first program as the kernel takes it, followed by the second,
// its length (8 bytes, big endian) and a mark. The first starts the second from
// memory and hands itself on as a descriptor, so that what the server starts is
// the very file it came from, whatever has been installed since.
package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/fault"
)

// mark ends a file that holds a second program.
const mark = "AFSERVER"

const tail = 8 + len(mark)

// variable tells the second program the first's descriptor.
const variable = "AGENTFENSE_PROGRAM_FD"

// firstFD is above what any start of a process hands on.
const firstFD = 100

// Join writes the two programs to w.
func Join(w io.Writer, first, second io.Reader) error {
	if _, err := io.Copy(w, first); err != nil {
		return err
	}
	n, err := io.Copy(w, second)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint64(nil, uint64(n)), mark...))
	return err
}

// second finds the second program in f. Errors: Unsupported if there is none.
func second(f *os.File) (*io.SectionReader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end := info.Size() - int64(tail)
	b := make([]byte, tail)
	if end < 0 {
		return nil, errNone
	}
	if _, err := f.ReadAt(b, end); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint64(b)
	if string(b[8:]) != mark || n > uint64(end) {
		return nil, errNone
	}
	return io.NewSectionReader(f, end-int64(n), int64(n)), nil
}

// FirstSize returns the length of the first program of f, or of the one that f
// is, in bytes.
func FirstSize(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	program, err := second(f)
	if errors.Is(err, errNone) {
		return info.Size(), nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size() - int64(tail) - program.Size(), nil
}

var errNone = errors.New("it holds no server: build it with `make build`")

// Exec replaces this process by the second program of its file, with the same
// arguments. It returns only on an error. Errors: Unsupported if the file holds
// none; Internal.
func Exec() error {
	err := execSecond()
	if errors.Is(err, errNone) {
		return fault.New(fault.Unsupported, "this program: %w", err)
	}
	return fault.New(fault.Internal, "start the server: %w", err)
}

func execSecond() error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	program, err := second(self)
	if err != nil {
		return err
	}
	memory, err := intoMemory(program)
	if err != nil {
		return err
	}
	defer memory.Close()
	fd, err := unix.FcntlInt(self.Fd(), unix.F_DUPFD, firstFD)
	if err != nil {
		return err
	}
	env := append(os.Environ(), variable+"="+strconv.Itoa(fd))
	return unix.Exec("/proc/self/fd/"+strconv.Itoa(int(memory.Fd())), os.Args, env)
}

// memoryName is the second program's name in memory, as memfd_create(2) takes it.
const memoryName = "agentfense"

// intoMemory copies a program into a file in memory that nobody can change.
func intoMemory(program io.Reader) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(memoryName, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 every one can be executed
		fd, err = unix.MemfdCreate(memoryName, flags)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err = io.Copy(f, program); err == nil {
		const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// First returns the path by which the second program starts the first, and
// keeps the descriptor behind it from other programs. Errors: Internal if this
// program was not started by Exec.
func First() (string, error) {
	fd, err := strconv.Atoi(os.Getenv(variable))
	if err != nil || fd < firstFD {
		return "", fault.New(fault.Internal, "the server is started by `agentfense serve`")
	}
	if err := os.Unsetenv(variable); err != nil {
		return "", err
	}
	unix.CloseOnExec(fd)
	firstPath = fmt.Sprintf("/proc/self/fd/%d", fd)
	return firstPath, nil
}

// firstPath is what First returned; empty in the first program itself.
var firstPath string

// Runs reports whether the process pid runs one of the two programs. The second
// is known by its name in memory alone, which any process of the user may bear.
func Runs(pid int) bool {
	exe := "/proc/" + strconv.Itoa(pid) + "/exe"
	if sameFile("/proc/self/exe", exe) || firstPath != "" && sameFile(firstPath, exe) {
		return true
	}
	target, err := os.Readlink(exe)
	return err == nil && target == "/memfd:"+memoryName+" (deleted)"
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
