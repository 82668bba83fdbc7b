// Package denylist lists the system calls that a sandbox may not make, the sockets that it does
// not get, and the few calls that the egress process may make, and compiles each list to the
// classic-BPF program that package seccomp embeds.
//
// Only the generator and tests link it, never the binary.
//
// Two calls are allowed although other sandboxes refuse them. ptrace is allowed for
// debuggers and strace: in the sandbox's pid namespace it reaches only the sandbox's
// processes, and our helpers among them are not dumpable, so a process without capabilities
// cannot trace them. seccomp is allowed because another filter can only restrict further.
//
// The list does not have calls that need a capability (clock_settime, sethostname and
// others in Docker's default profile): the kernel refuses them, because no process inside
// has one.
package denylist

import (
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/sys/unix"
)

// errno makes a system call fail with e. With 0 the call does nothing and succeeds.
func errno(e unix.Errno) seccomp.Action {
	return seccomp.ActionErrno | seccomp.Action(e)
}

// rule refuses some system calls, always or under a condition.
type rule struct {
	action seccomp.Action
	calls  []string
	when   []seccomp.Condition // all must be true; empty: always
}

// namespaceFlags are the CLONE_NEW* bits of clone(2). CLONE_NEWTIME overlaps with clone's
// exit signal; only unshare and clone3 accept it.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// fileSystemNames are the ioctl requests for the identifier, label or devices of a file's
// file system. They identify the host.
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

// rules returns the deny list, without sockets. A name that an architecture does not have is
// skipped there. A name that no architecture has is an error.
func rules() []rule {
	return slices.Concat(fixedRules(), fileSystemRules(), priorityRules())
}

// priorityRules prevent a program from lowering the priority of PID 1 and the leaders,
// which the kernel allows because they run as the same user. As with prlimit64, they also
// refuse a program that passes its own pid. They allow 0, for the program itself or its
// process group, because our processes are in no group that a program can enter.
// sched_setaffinity is allowed: libraries use it with thread ids, and sharing a processor
// with a busy program costs less than a low priority.
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
		// Callers of these have a fallback for ENOSYS. clone3 takes its flags through a
		// pointer, which a filter cannot read. io_uring can do what the other rules refuse.
		// memfd_secret takes memory out of the kernel's map, where no limit reclaims it.
		// modify_ldt has been used for exploits (CVE-2015-5157, CVE-2017-17053), and only
		// Wine needs it. The kernel counts the requests of io_setup for the whole host
		// (fs.aio-max-nr), so one sandbox could use up all of them.
		{action: errno(unix.ENOSYS), calls: []string{
			"clone3", "io_uring_setup", "io_uring_enter", "io_uring_register",
			"memfd_secret", "modify_ldt", "io_setup",
		}},
		// Keyrings are not fully namespaced: a sandbox could inherit and search a session
		// keyring of the host.
		{action: errno(unix.EPERM), calls: []string{"add_key", "request_key", "keyctl"}},
		// New namespaces give capabilities over kernel code that was written for root,
		// including mounts.
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
		// These access another process's memory and descriptors.
		{action: errno(unix.EPERM), calls: []string{
			"process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
		}},
		// Opening files by handle bypasses paths, and so the view. fanotify watches whole
		// file systems.
		{action: errno(unix.EPERM), calls: []string{
			"name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark",
		}},
		// Kernel interfaces for administrators and profilers.
		{action: errno(unix.EPERM), calls: []string{
			"bpf", "perf_event_open", "userfaultfd", "lookup_dcookie",
			"init_module", "finit_module", "delete_module", "create_module", "query_module", "get_kernel_syms",
			"kexec_load", "kexec_file_load", "reboot", "syslog",
			"swapon", "swapoff", "acct", "quotactl", "quotactl_fd",
			"iopl", "ioperm", "uselib", "_sysctl", "nfsservctl", "vserver", "vhangup",
		}},
		// TIOCSTI inserts input for the next reader of the terminal (CVE-2017-5226),
		// TIOCLINUX pastes into the console, TIOCSETD loads line disciplines.
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCSTI)},
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCLINUX)},
		{action: errno(unix.EPERM), calls: []string{"ioctl"}, when: lowWordIs(1, unix.TIOCSETD)},
		// Setting the limits of a process by its pid: the kernel allows it for PID 1 and
		// the leaders, which run as the same user. A program that passes its own pid, which
		// a filter cannot know, is refused as well. Reading limits is allowed.
		{
			action: errno(unix.EPERM), calls: []string{"prlimit64"},
			when: append(noneOf(2, 0), anyBit(0, ^uint32(0))),
		},
		// The core limit stays at 1, so that the kernel pipes no dump to the host's
		// core_pattern program (see bwrap.limitCore). With 0 it would. For programs that
		// set it to 0, the call does nothing and succeeds.
		{action: errno(0), calls: []string{"setrlimit"}, when: lowWordIs(0, unix.RLIMIT_CORE)},
		{
			action: errno(0), calls: []string{"prlimit64"},
			when: append(lowWordIs(1, unix.RLIMIT_CORE), noneOf(2, 0)...),
		},
		// A personality can map page zero, make all readable memory executable and disable
		// address randomisation. The allowed values are those of Docker's default profile:
		// PER_LINUX, PER_LINUX32, each with or without UNAME26, and the query, which C
		// libraries pass as 32 or 64 bits.
		{
			action: errno(unix.EPERM), calls: []string{"personality"},
			when: noneOf(0, 0, 0x8, 0x20000, 0x20008, 0xffffffff, ^uint64(0)),
		},
	}
}

// anyBit is true if the low word of the argument has one of the bits of mask.
func anyBit(arg uint32, mask uint32) seccomp.Condition {
	return seccomp.Condition{Argument: arg, Operation: seccomp.BitsSet, Value: uint64(mask)}
}

// lowWordIs is true if the low 32 bits of the argument equal value. The kernel reads an int
// argument in the same way. A filter that compared all 64 bits could be bypassed by setting
// a high bit (CVE-2019-10063). The high word may not be refused, because libraries
// sign-extend into it.
func lowWordIs(arg uint32, value uint32) []seccomp.Condition {
	return maskedIs(arg, ^uint32(0), value)
}

// maskedIs is true if the argument, masked with mask, equals value.
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

// noneOf is true if the argument, with all 64 bits, differs from every value.
func noneOf(arg uint32, values ...uint64) []seccomp.Condition {
	var conditions []seccomp.Condition
	for _, v := range values {
		conditions = append(conditions, seccomp.Condition{Argument: arg, Operation: seccomp.NotEqual, Value: v})
	}
	return conditions
}
