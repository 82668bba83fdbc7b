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

// maxFilter is more than any seccomp program takes: BPF_MAXINSNS instructions
// (linux/bpf_common.h).
const maxFilter = 4096 * instructionBytes

// instructionBytes is the size of a struct sock_filter (linux/filter.h).
const instructionBytes = 8

// parked is above any descriptor that a program makes by itself at its start.
const parked = 64

// stderrFD is where the program has its standard error.
const stderrFD = 2

// Main is the program's first half. It takes what is offered at the socket of
// args[0] and runs the same binary anew with the rest of args and the number of
// the guest socket, under the filter. It does not return.
func Main(args []string) {
	err := errors.New("bad arguments")
	if len(args) > 1 {
		err = take(args[0], args[1:])
	}
	os.Stderr.WriteString("agentfense: inside: handover: " + err.Error() + "\n")
	os.Exit(1)
}

func take(socket string, args []string) error {
	// The filter is the thread's that execve keeps.
	runtime.LockOSThread()
	filter, fds, err := receive(socket)
	if err != nil {
		return err
	}
	if err := unix.Dup3(fds[1], stderrFD, 0); err != nil {
		return fmt.Errorf("standard error: %w", err)
	}
	// Not at a low number: there the runtime has its own, and uses them.
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

// receive takes the one message, with two descriptors.
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

// install puts this thread under a filter, for which it must have no_new_privs.
func install(filter []byte) error {
	program := unix.SockFprog{
		Len:    uint16(len(filter) / instructionBytes),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0])),
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
