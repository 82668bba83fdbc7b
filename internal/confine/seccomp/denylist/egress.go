package denylist

import (
	"fmt"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// egressCalls are what the egress process may call, and nothing else: what the Go runtime needs,
// sockets that it connects or was given, and files to read, for the host's resolver. Calls that an
// architecture does not have are left out there.
var egressCalls = []string{
	// memory, threads, time and signals of its own
	"brk", "mmap", "munmap", "mprotect", "madvise", "mincore", "mremap",
	"futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "sigaltstack",
	"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "getpid", "gettid", "getuid", "geteuid", "getgid", "getegid",
	"nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday", "timer_create", "timer_settime", "timer_delete",
	"restart_syscall", "exit", "exit_group", "getrandom", "uname", "getrlimit", "arch_prctl",
	// descriptors
	"read", "write", "readv", "writev", "pread64", "close", "dup", "dup3", "lseek", "pipe2", "splice",
	"fstat", "newfstatat", "stat", "lstat", "statx", "readlinkat", "readlink", "getdents64",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2", "poll", "ppoll",
	// sockets
	"connect", "accept4", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
	"sendto", "recvfrom", "sendmsg", "recvmsg",
}

// CompileEgress returns the filter of the egress process for goarch, in the form of Compile.
func CompileEgress(goarch string) ([]byte, error) {
	instructions, err := assembleEgress(goarch)
	if err != nil {
		return nil, err
	}
	return encode(goarch, instructions)
}

func assembleEgress(goarch string) ([]bpf.Instruction, error) {
	info, ok := architectures[goarch]
	if !ok {
		return nil, fmt.Errorf("compile filter: unknown architecture %q", goarch)
	}
	allow, refuse := bpf.RetConstant{Val: uint32(seccomp.ActionAllow)}, bpf.RetConstant{Val: uint32(errno(unix.EPERM))}
	program := prologue(info)
	for _, name := range egressCalls {
		number, ok := info.SyscallNames[name]
		if !ok {
			if !known(name) {
				return nil, fmt.Errorf("unknown system call %q", name)
			}
			continue
		}
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: 1}, allow)
	}
	for _, c := range egressConditions {
		body, err := c.compile(info, allow, refuse)
		if err != nil {
			return nil, err
		}
		program = append(program, body...)
	}
	return append(program, refuse), nil
}

// egressCondition allows a call that has one of some values in an argument, or some bits set or
// not.
type egressCondition struct {
	call   string
	arg    uint32
	values []uint32 // of the low word, which is all that the kernel reads of it
	set    uint32   // a bit that must be set
	clear  uint32   // bits that must not
}

var egressConditions = []egressCondition{
	// No process, but threads.
	{call: "clone", arg: 0, set: unix.CLONE_THREAD},
	// Nothing is written to files, and none is made.
	{call: "openat", arg: 2, clear: unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC},
	// The Go runtime preempts its threads by this signal, which ends no process. A filter cannot
	// know our pid, and the supervisor of an ordinary user has the same uid.
	{call: "tgkill", arg: 2, values: []uint32{uint32(unix.SIGURG)}},
	// Limits of this process, not of others.
	{call: "prlimit64", arg: 0, values: []uint32{0}},
	// No F_SETOWN and F_SETSIG, by which a socket sends signals to processes.
	{call: "fcntl", arg: 1, values: []uint32{
		unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ,
	}},
	// Connections, and questions about routes.
	{call: "socket", arg: 0, values: []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
}

// compile allows or refuses the call; others go on after it, with their number still loaded.
func (c egressCondition) compile(info *arch.Info, allow, refuse bpf.Instruction) ([]bpf.Instruction, error) {
	number, ok := info.SyscallNames[c.call]
	if !ok {
		return nil, fmt.Errorf("compile filter: no %s on %s", c.call, info.Name)
	}
	body := []bpf.Instruction{bpf.LoadAbsolute{Off: offsetArgs + 8*c.arg, Size: 4}}
	for _, v := range c.values {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipFalse: 1}, allow)
	}
	if c.set != 0 {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: c.set, SkipFalse: 1}, allow)
	}
	if c.clear != 0 {
		body = append(body, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: c.clear, SkipTrue: 1}, allow)
	}
	body = append(body, refuse)
	return append([]bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(number), SkipFalse: uint8(len(body))}}, body...), nil
}
