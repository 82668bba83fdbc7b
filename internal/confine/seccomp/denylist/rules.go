// Package denylist says which system calls a sandbox is refused, and compiles
// that into the classic-BPF programs which package seccomp embeds.
//
// It is linked into the generator and into tests only, never into the binary.
//
// Two calls are not in the list although other sandboxes refuse them. ptrace
// stays, because debuggers and strace are honest work: in its own pid namespace
// it reaches only the sandbox's own processes, and our helpers among them are
// not dumpable, so not traceable without a capability nobody has. seccomp stays,
// because a filter can only be narrowed.
//
// The calls that Docker's default profile ties to a capability (clock_settime,
// sethostname and the like) are left to the kernel: no process inside has one.
package denylist

import (
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// errno makes a system call fail with e, or with 0 do nothing and succeed.
func errno(e unix.Errno) seccomp.Action {
	return seccomp.ActionErrno | seccomp.Action(e)
}

// rule refuses some system calls, always or under a condition.
type rule struct {
	action seccomp.Action
	calls  []string
	when   []seccomp.Condition // all must hold; none: always
}

// namespaceFlags are the CLONE_NEW* bits of clone(2). CLONE_NEWTIME lies in
// the exit-signal byte there and exists for unshare and clone3 only.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// rules is the deny list. A name that an architecture does not have is skipped
// there; a name that none has is an error.
const (
	socketTypes  = 0xf // SOCK_TYPE_MASK of linux/net.h
	protocolL2TP = 115 // IPPROTO_L2TP of linux/in.h
)

// fileSystemNames are what a file of the host is asked for the names of its file
// system: identifier, label, devices. They name the host, as its boot options do.
var fileSystemNames = []uint32{
	0x80111500, // FS_IOC_GETFSUUID
	0x80811501, // FS_IOC_GETFSSYSFSPATH
	0x81009431, // FS_IOC_GETFSLABEL, also of ext4, XFS, btrfs
	0x8008662c, // EXT4_IOC_GETFSUUID
	0x8400941f, // BTRFS_IOC_FS_INFO
	0xd000941e, // BTRFS_IOC_DEV_INFO
	0x8100587e, // XFS_IOC_FSGEOMETRY
	0x8070587c, // XFS_IOC_FSGEOMETRY_V4
	0x80705864, // XFS_IOC_FSGEOMETRY_V1
}

func rules() []rule {
	return slices.Concat(fixedRules(), fileSystemRules(), priorityRules())
}

// priorityRules keep a program from slowing down PID 1 and the leaders, which run
// as the same user: the kernel asks for no more. As with prlimit64, a program that
// gives its own pid is refused as well; 0, for itself or its group, is not. That
// sets nothing of ours, which is in no group that a program can enter.
// sched_setaffinity stays: libraries bind their threads by number, and to share a
// processor with a busy program costs less than a low priority.
func priorityRules() []rule {
	const ioprioWhoUser = 3 // IOPRIO_WHO_USER of linux/ioprio.h
	someone := func(arg uint32) []seccomp.Condition { return []seccomp.Condition{anyBit(arg, ^uint32(0))} }
	return []rule{
		{action: errno(unix.EPERM), calls: []string{"setpriority", "ioprio_set"}, when: someone(1)},
		{action: errno(unix.EPERM), calls: []string{"setpriority"}, when: lowWordIs(0, unix.PRIO_USER)},
		{action: errno(unix.EPERM), calls: []string{"ioprio_set"}, when: lowWordIs(0, ioprioWhoUser)},
		{action: errno(unix.EPERM), calls: []string{"sched_setscheduler", "sched_setparam", "sched_setattr"}, when: someone(0)},
	}
}

func fileSystemRules() []rule {
	var rules []rule
	for _, request := range fileSystemNames {
		rules = append(rules, rule{action: errno(unix.ENOTTY), calls: []string{"ioctl"}, when: lowWordIs(1, request)})
	}
	return rules
}

func fixedRules() []rule {
	return []rule{
		// Callers of these fall back when the kernel seems too old to have
		// them. clone3 takes its flags through a pointer, which a filter
		// cannot read; io_uring does everything the other rules refuse;
		// memfd_secret takes memory out of the kernel's own map, where no
		// limit reclaims it; modify_ldt has let programs into the kernel
		// before (CVE-2015-5157, CVE-2017-17053), and only Wine wants it. The
		// requests of io_setup are counted for the whole host (fs.aio-max-nr),
		// so that one sandbox could take them all from its databases.
		{action: errno(unix.ENOSYS), calls: []string{
			"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register",
			"memfd_secret", "modify_ldt", "io_setup",
		}},
		// Keyrings are not namespaced by user alone: a session keyring of the
		// host could be inherited and searched.
		{action: errno(unix.EPERM), calls: []string{"add_key", "request_key", "keyctl"}},
		// New namespaces hand out capabilities over kernel code that was
		// written for root, and with them mounts.
		{
			action: errno(unix.EPERM), calls: []string{"clone"},
			when: []seccomp.Condition{anyBit(0, namespaceFlags)},
		},
		{
			action: errno(unix.EPERM), calls: []string{"unshare"},
			when: []seccomp.Condition{anyBit(0, namespaceFlags|unix.CLONE_NEWTIME)},
		},
		{action: errno(unix.EPERM), calls: []string{
			"setns",
			"mount", "umount2", "pivot_root", "chroot",
			"fsopen", "fsconfig", "fsmount", "fspick",
			"open_tree", "open_tree_attr", "move_mount", "mount_setattr",
		}},
		// Another process's memory and descriptors, beside ptrace and its
		// checks.
		{action: errno(unix.EPERM), calls: []string{
			"process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
		}},
		// Files by handle go past the path, and so past the view; fanotify
		// watches whole file systems.
		{action: errno(unix.EPERM), calls: []string{
			"name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark",
		}},
		// Kernel surface for administrators and profilers.
		{action: errno(unix.EPERM), calls: []string{
			"bpf", "perf_event_open", "userfaultfd", "lookup_dcookie",
			"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
			"kexec_load", "kexec_file_load", "reboot", "syslog",
			"swapon", "swapoff", "acct", "quotactl", "quotactl_fd",
			"iopl", "ioperm", "uselib", "_sysctl", "nfsservctl", "vserver", "vhangup",
		}},
		// TIOCSTI types into the terminal for the shell that reads it next
		// (CVE-2017-5226), TIOCLINUX pastes into the console, TIOCSETD loads
		// line disciplines.
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCSTI)},
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCLINUX)},
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCSETD)},
		// The limits of a process by its pid: PID 1 and the leaders run as the
		// same user, and the kernel asks for no more. A program that gives its
		// own pid, which a filter cannot know, is refused as well; reading is
		// not.
		{
			action: errno(unix.EPERM), calls: []string{"prlimit64"},
			when: append(noneOf(2, 0), anyBit(0, ^uint32(0))),
		},
		// The core limit stays at 1, which is what keeps a crash from a host's
		// core_pattern program (see bwrap.limitCore): with 0 the kernel would
		// pipe it there. Programs that set 0 themselves, for the same purpose,
		// are told that it worked.
		{action: errno(0), calls: []string{"setrlimit"}, when: lowWordIs(0, unix.RLIMIT_CORE)},
		{
			action: errno(0), calls: []string{"prlimit64"},
			when: append(lowWordIs(1, unix.RLIMIT_CORE), noneOf(2, 0)...),
		},
		// A personality can map page zero, make all readable memory executable
		// and switch address randomisation off. The values that stay are those
		// of Docker's default profile: PER_LINUX, PER_LINUX32, each with
		// UNAME26 or without, and the question what it is, which C libraries
		// pass as 32 bits or as 64.
		{
			action: errno(unix.EPERM), calls: []string{"personality"},
			when: noneOf(0, 0, 0x8, 0x20000, 0x20008, 0xffffffff, ^uint64(0)),
		},
		// Netlink for addresses and routes alone. The other protocols reach
		// code for administrators (netfilter, IPsec, audit), or speak of the
		// whole host whatever the namespace (connector).
		{
			action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket", "socketpair"},
			when: append(lowWordIs(0, unix.AF_NETLINK), anyBit(2, ^uint32(0))),
		},
		// Transports that the kernel loads a module for when somebody asks, which
		// hardly any program does: old code, with old faults (CVE-2017-6074).
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, unix.IPPROTO_SCTP)},
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, unix.IPPROTO_DCCP)},
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, protocolL2TP)},
		{action: errno(unix.ESOCKTNOSUPPORT), calls: []string{"socket"}, when: maskedIs(1, socketTypes, unix.SOCK_DCCP)},
		// Sockets only of the families that a network namespace contains;
		// vsock would reach the hypervisor, and the rest is rarely run code.
		{
			action: errno(unix.EAFNOSUPPORT), calls: []string{"socket", "socketpair"},
			when: noneOf(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK),
		},
	}
}

// anyBit holds if the argument has one of the bits of mask, in its low word.
func anyBit(arg uint32, mask uint32) seccomp.Condition {
	return seccomp.Condition{Argument: arg, Operation: seccomp.BitsSet, Value: uint64(mask)}
}

// lowWordIs holds if the low 32 bits of the argument equal value, whatever is
// above them. The kernel reads an int argument so, and a filter that compared
// all 64 bits would be passed by setting one of the others (CVE-2019-10063);
// nor may the high word be refused, since libraries sign-extend into it.
func lowWordIs(arg uint32, value uint32) []seccomp.Condition {
	return maskedIs(arg, ^uint32(0), value)
}

// maskedIs holds if those bits of the argument that mask has equal value.
func maskedIs(arg uint32, mask, value uint32) []seccomp.Condition {
	conditions := []seccomp.Condition{
		{Argument: arg, Operation: seccomp.BitsNotSet, Value: uint64(mask &^ value)},
	}
	for bit := uint32(1); bit != 0; bit <<= 1 {
		if value&bit != 0 {
			conditions = append(conditions, anyBit(arg, bit))
		}
	}
	return conditions
}

// noneOf holds if the argument, all 64 bits of it, differs from every value.
func noneOf(arg uint32, values ...uint64) []seccomp.Condition {
	var conditions []seccomp.Condition
	for _, v := range values {
		conditions = append(conditions, seccomp.Condition{Argument: arg, Operation: seccomp.NotEqual, Value: v})
	}
	return conditions
}
