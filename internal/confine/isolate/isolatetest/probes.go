package isolatetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probes are attempts of a hostile program. Each returns the error of its system call.
var probes = map[string]func() error{
	"push a character into the terminal": func() error {
		char := byte('x')
		return call(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&char)))
	},
	"push a character with a high word set": func() error {
		char := byte('x')
		return call(unix.SYS_IOCTL, 0, 1<<32|unix.TIOCSTI, uintptr(unsafe.Pointer(&char)))
	},
	"unshare a user namespace":        func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"unshare a mount namespace":       func() error { return unix.Unshare(unix.CLONE_NEWNS) },
	"clone with clone3":               func() error { return call(unix.SYS_CLONE3, 0, 0, 0) },
	"join a namespace":                func() error { return call(unix.SYS_SETNS, 0, 0, 0) },
	"mount":                           func() error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") },
	"unmount the workspace":           func() error { return unix.Unmount("/workspace", unix.MNT_DETACH) },
	"open a file system":              func() error { _, err := unix.Fsopen("tmpfs", 0); return err },
	"clone a mount":                   func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", 1); return err },
	"set up io_uring":                 func() error { return call(unix.SYS_IO_URING_SETUP, 1, 0, 0) },
	"read a keyring":                  func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err },
	"load a BPF program":              func() error { return call(unix.SYS_BPF, 0, 0, 0) },
	"count performance events":        func() error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0) },
	"handle page faults":              func() error { return call(unix.SYS_USERFAULTFD, 0, 0, 0) },
	"read another process's memory":   func() error { return call(unix.SYS_PROCESS_VM_READV, 1, 0, 0) },
	"take another's descriptor":       func() error { return call(unix.SYS_PIDFD_GETFD, 0, 0, 0) },
	"compare processes":               func() error { return call(unix.SYS_KCMP, 1, 1, 0) },
	"open a file by handle":           func() error { return call(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0) },
	"watch a file system":             func() error { return call(unix.SYS_FANOTIFY_INIT, 0x600, 0, 0) },
	"load a kernel":                   func() error { return call(unix.SYS_KEXEC_LOAD, 0, 0, 0) },
	"load a module":                   func() error { return call(unix.SYS_FINIT_MODULE, 0, 0, 0) },
	"open a vsock":                    func() error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err },
	"open a raw socket":               func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP); return err },
	"become another user":             func() error { return unix.Setresuid(0, 0, 0) },
	"make a device":                   func() error { return unix.Mknod("/tmp/null", unix.S_IFCHR|0o666, 0x103) },
	"trace PID 1":                     func() error { return unix.PtraceAttach(1) },
	"trace the leader":                func() error { return unix.PtraceAttach(os.Getppid()) },
	"read the memory of PID 1":        func() error { return open("/proc/1/mem") },
	"list the descriptors of PID 1":   func() error { return open("/proc/1/fd") },
	"read the binary of PID 1":        func() error { return open("/proc/1/exe") },
	"read the descriptors of leaders": func() error { return open("/proc/" + strconv.Itoa(os.Getppid()) + "/fd") },
	"read the binary of a leader":     func() error { return open("/proc/" + strconv.Itoa(os.Getppid()) + "/exe") },
	"write a kernel setting":          func() error { return os.WriteFile("/proc/sys/kernel/core_pattern", nil, 0) },
	"write the user limits":           func() error { return os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("9"), 0) },
}

func call(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall6(number, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func open(path string) error {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err
}

// probe runs the probes and prints each name with its error, or with ok.
func probe(names []string) int {
	for _, name := range names {
		result := "ok"
		if err := probes[name](); err != nil {
			result = err.Error()
			if i := strings.LastIndex(result, ": "); i >= 0 {
				result = result[i+2:]
			}
		}
		fmt.Printf("%s: %s\n", name, result)
	}
	return 0
}
