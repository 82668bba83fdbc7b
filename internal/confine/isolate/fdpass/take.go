package fdpass

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxFilter is the maximum size of a seccomp program: BPF_MAXINSNS instructions
// (linux/bpf_common.h).
const maxFilter = 4096 * instructionBytes

// instructionBytes is the size of a struct sock_filter (linux/filter.h).
const instructionBytes = 8

// parked is above any descriptor that the runtime opens at its start.
const parked = 64

// stderrFD is the descriptor of the standard error.
const stderrFD = 2

// Main is the first part of the program. It receives the descriptors from the socket
// args[0]. Then it executes the same binary under the filter, with the other arguments and
// the number of the guest socket. It does not return.
func Main(args []string) {
	err := errors.New("bad arguments")
	if len(args) > 1 {
		err = take(args[0], args[1:])
	}
	os.Stderr.WriteString("agentfense: inside: receive descriptors: " + err.Error() + "\n")
	os.Exit(1)
}

func take(socket string, args []string) error {
	// Lock the thread: execve keeps the filter of the calling thread.
	runtime.LockOSThread()
	filter, fds, err := receive(socket)
	if err != nil {
		return err
	}
	if err := unix.Dup3(fds[1], stderrFD, 0); err != nil {
		return fmt.Errorf("standard error: %w", err)
	}
	// Not a low number, because the runtime uses those.
	guest, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD, parked)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	if err := install(filter); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	args = append([]string{"agentfense"}, args...)
	return unix.Exec("/proc/self/exe", append(args, strconv.Itoa(guest)), os.Environ())
}

// receive receives the message with two descriptors.
func receive(socket string) ([]byte, [2]int, error) {
	var fds [2]int
	conn, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fds, err
	}
	defer unix.Close(conn)
	if err := unix.Connect(conn, &unix.SockaddrUnix{Name: socket}); err != nil {
		return nil, fds, err
	}
	filter, oob := make([]byte, maxFilter), make([]byte, unix.CmsgSpace(4*len(fds)))
	n, oobn, flags, _, err := unix.Recvmsg(conn, filter, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fds, err
	}
	rights, err := rightsOf(oob[:oobn])
	if err != nil {
		return nil, fds, err
	}
	if len(rights) != len(fds) || n == 0 || n%instructionBytes != 0 || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, fds, errors.New("malformed message")
	}
	return filter[:n], [2]int(rights), nil
}

func rightsOf(oob []byte) ([]int, error) {
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(controls) != 1 {
		return nil, errors.Join(errors.New("malformed message"), err)
	}
	return unix.ParseUnixRights(&controls[0])
}

// install applies a filter to this thread, which must have no_new_privs.
func install(filter []byte) error {
	program := unix.SockFprog{
		Len:    uint16(len(filter) / instructionBytes),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0])),
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
