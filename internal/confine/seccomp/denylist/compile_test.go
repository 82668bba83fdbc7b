package denylist

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	ours "github.com/agentfense/agentfense/internal/confine/seccomp"
)

const (
	allow = uint32(seccomp.ActionAllow)
	kill  = uint32(seccomp.ActionKillProcess)
)

// call is a struct seccomp_data.
type call struct {
	number uint32
	arch   uint32
	args   [6]uint64
}

// bytes encodes c for bpf.VM, which loads words in big endian order, while the kernel uses
// its native order. The words are at the kernel's offsets.
func (c call) bytes() []byte {
	b := binary.BigEndian.AppendUint32(nil, c.number)
	b = binary.BigEndian.AppendUint32(b, c.arch)
	b = binary.BigEndian.AppendUint64(b, 0)
	for _, a := range c.args {
		b = binary.BigEndian.AppendUint32(b, uint32(a))
		b = binary.BigEndian.AppendUint32(b, uint32(a>>32))
	}
	return b
}

// judge answers as the kernel does to a program that is under all of these filters.
type judge struct {
	goarch string
	vms    []*bpf.VM
}

func newJudge(t *testing.T, goarch string) judge {
	t.Helper()
	vm := func(instructions []bpf.Instruction, err error) *bpf.VM {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		vm, err := bpf.NewVM(instructions)
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	return judge{goarch, []*bpf.VM{vm(assemble(goarch)), vm(assembleSockets(goarch))}}
}

func (j judge) call(t testing.TB, name string, args ...uint64) call {
	info := architectures[j.goarch]
	number, ok := info.SyscallNames[name]
	if !ok {
		t.Fatalf("%s: no system call %q", j.goarch, name)
	}
	c := call{number: uint32(number), arch: uint32(info.ID)}
	copy(c.args[:], args)
	return c
}

func (j judge) answer(t interface{ Fatal(...any) }, c call) uint32 {
	answer := allow
	for _, vm := range j.vms {
		got, err := vm.Run(c.bytes())
		if err != nil {
			t.Fatal(err)
		}
		if int32(got) < int32(answer) { // the kernel's order of actions (seccomp(2))
			answer = uint32(got)
		}
	}
	return answer
}

func TestFilterAnswers(t *testing.T) {
	no, absent := uint32(errno(unix.EPERM)), uint32(errno(unix.ENOSYS))
	family, protocol, kind, noRequest := uint32(errno(unix.EAFNOSUPPORT)), uint32(errno(unix.EPROTONOSUPPORT)), uint32(errno(unix.ESOCKTNOSUPPORT)), uint32(errno(unix.ENOTTY))
	const garbage = 0xdeadbeef << 32
	tests := []struct {
		name string
		call string
		args []uint64
		want uint32
	}{
		{"reading goes through", "read", nil, allow},
		{"clone3 answers as if it did not exist", "clone3", nil, absent},
		{"io_uring answers as if it did not exist", "io_uring_setup", nil, absent},
		{"a thread may be made", "clone", []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"a process may be forked", "clone", []uint64{uint64(unix.SIGCHLD)}, allow},
		{"a user namespace is refused to clone", "clone", []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, no},
		{"a mount namespace is refused to clone", "clone", []uint64{unix.CLONE_NEWNS}, no},
		{"a high word does not hide a namespace", "clone", []uint64{garbage | unix.CLONE_NEWUSER}, no},
		{"an exit signal with bit 7 is no time namespace", "clone", []uint64{0x80}, allow},
		{"a user namespace is refused to unshare", "unshare", []uint64{unix.CLONE_NEWUSER}, no},
		{"a time namespace is refused to unshare", "unshare", []uint64{unix.CLONE_NEWTIME}, no},
		{"unsharing descriptors is harmless", "unshare", []uint64{unix.CLONE_FILES}, allow},
		{"setns is refused", "setns", nil, no},
		{"the old mount call is refused", "mount", nil, no},
		{"the new mount calls are refused", "fsopen", nil, no},
		{"the newest mount call is refused", "open_tree_attr", nil, no},
		{"keyrings are refused", "keyctl", nil, no},
		{"bpf is refused", "bpf", nil, no},
		{"another process's memory is refused", "process_vm_writev", nil, no},
		{"another process's descriptors are refused", "pidfd_getfd", nil, no},
		{"userfaultfd is refused", "userfaultfd", nil, no},
		{"kexec is refused", "kexec_load", nil, no},
		{"modules are refused", "finit_module", nil, no},
		{"files by handle are refused", "open_by_handle_at", nil, no},
		{"debuggers work", "ptrace", nil, allow},
		{"a window size may be asked", "ioctl", []uint64{1, unix.TIOCGWINSZ}, allow},
		{"typing into the terminal is refused", "ioctl", []uint64{0, unix.TIOCSTI}, no},
		{"a high word does not hide typing", "ioctl", []uint64{0, garbage | unix.TIOCSTI}, no},
		{"a sign-extended request is not refused for it", "ioctl", []uint64{0, 0xffffffff00000000 | 0x80045430}, allow},
		{"console selection is refused", "ioctl", []uint64{0, unix.TIOCLINUX}, no},
		{"line disciplines are refused", "ioctl", []uint64{0, unix.TIOCSETD}, no},
		{"the core limit is left alone", "setrlimit", []uint64{unix.RLIMIT_CORE, 1}, uint32(errno(0))},
		{"the core limit is left alone by its newer name", "prlimit64", []uint64{0, unix.RLIMIT_CORE, 1, 0}, uint32(errno(0))},
		{"the core limit may be read", "prlimit64", []uint64{0, unix.RLIMIT_CORE, 0, 1}, allow},
		{"other limits may be set", "prlimit64", []uint64{0, unix.RLIMIT_NOFILE, 1, 0}, allow},
		{"another process's limits are left alone", "prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 1, 0}, no},
		{"an address of the high word alone is one", "prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 1 << 32, 0}, no},
		{"another process's core limit is left alone", "prlimit64", []uint64{1, unix.RLIMIT_CORE, 1, 0}, no},
		{"another process's limits may be read", "prlimit64", []uint64{1, unix.RLIMIT_NOFILE, 0, 1}, allow},
		{"a high word does not make a pid", "prlimit64", []uint64{garbage, unix.RLIMIT_NOFILE, 1, 0}, allow},
		{"a high word does not hide a pid", "prlimit64", []uint64{garbage | 1, unix.RLIMIT_NOFILE, 1, 0}, no},
		{"TCP is allowed", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM}, allow},
		{"netlink for routes is allowed", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"netlink for audit is no protocol", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, protocol},
		{"netlink for socket statistics is no protocol", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_DGRAM, unix.NETLINK_SOCK_DIAG}, protocol},
		{"a high word does not make a netlink protocol", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, garbage}, allow},
		{"a high word does not hide a netlink protocol", "socket", []uint64{unix.AF_NETLINK, unix.SOCK_RAW, garbage | unix.NETLINK_NETFILTER}, protocol},
		{"another family has protocols of its own", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow},
		{"MPTCP is allowed", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, allow},
		{"SCTP is no protocol", "socket", []uint64{unix.AF_INET6, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP}, protocol},
		{"L2TP is no protocol", "socket", []uint64{unix.AF_INET, unix.SOCK_DGRAM, 115}, protocol},
		{"SMC is no protocol", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, 256}, protocol},
		{"DCCP is no protocol", "socket", []uint64{unix.AF_INET, unix.SOCK_STREAM, garbage | unix.IPPROTO_DCCP}, protocol},
		{"DCCP's type does not exist", "socket", []uint64{unix.AF_INET, unix.SOCK_DCCP | unix.SOCK_CLOEXEC}, kind},
		{"the types beside DCCP's do", "socket", []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK}, allow},
		{"requests counted for the whole host do not exist", "io_setup", []uint64{1}, absent},
		{"a file system's identifier is not told", "ioctl", []uint64{3, garbage | 0x80111500}, noRequest},
		{"a file's flags are told", "ioctl", []uint64{3, unix.FS_IOC_GETFLAGS}, allow},
		{"the usual personality may be set", "personality", []uint64{0}, allow},
		{"the personality may be asked", "personality", []uint64{0xffffffff}, allow},
		{"the personality may be asked by a sign-extended -1", "personality", []uint64{^uint64(0)}, allow},
		{"a 32-bit program's personality may be set", "personality", []uint64{0x0008}, allow},
		{"a short uname may be asked for", "personality", []uint64{0x20008}, allow},
		{"address randomisation stays on", "personality", []uint64{0x0040000}, no},
		{"readable memory does not become executable", "personality", []uint64{0x0400000}, no},
		{"page zero is not mapped", "personality", []uint64{0x0100000}, no},
		{"a high word does not hide a personality", "personality", []uint64{garbage | 0x0040000}, no},
		{"memory without a place in the kernel's map does not exist", "memfd_secret", nil, absent},
		{"vsock is no family", "socket", []uint64{unix.AF_VSOCK}, family},
		{"the kernel's ciphers are no family", "socket", []uint64{unix.AF_ALG}, family},
		{"a high word does not hide a family", "socket", []uint64{garbage | unix.AF_VSOCK}, family},
		{"a process may lower its own priority", "setpriority", []uint64{unix.PRIO_PROCESS, 0, 10}, allow},
		{"and that of its group", "setpriority", []uint64{unix.PRIO_PGRP, 0, 10}, allow},
		{"not that of PID 1", "setpriority", []uint64{unix.PRIO_PROCESS, 1, 10}, no},
		{"nor that of all the user's", "setpriority", []uint64{unix.PRIO_USER, 0, 10}, no},
		{"a high word does not hide the user", "setpriority", []uint64{garbage | unix.PRIO_USER, 0, 10}, no},
		{"a high word is no pid", "setpriority", []uint64{unix.PRIO_PROCESS, garbage, 10}, allow},
		{"the same of its I/O", "ioprio_set", []uint64{1, 0, 0x6000}, allow},
		{"and PID 1's", "ioprio_set", []uint64{1, 1, 0x6000}, no},
		{"and all the user's", "ioprio_set", []uint64{3, 0, 0x6000}, no},
		{"a process may choose its own scheduler", "sched_setscheduler", []uint64{0, 5}, allow},
		{"not another's", "sched_setscheduler", []uint64{7, 5}, no},
		{"nor by its attributes", "sched_setattr", []uint64{7}, no},
		{"nor its parameters", "sched_setparam", []uint64{7}, no},
		{"threads may be bound to processors", "sched_setaffinity", []uint64{7}, allow},
		{"unix pairs are allowed", "socketpair", []uint64{unix.AF_UNIX}, allow},
		{"a file may be given to who is inside", "fchownat", []uint64{3, 1, ours.OwnUser, ours.OwnGroup, 0}, allow},
		{"a file may be left as it is", "fchown", []uint64{3, ^uint64(0), 0xffffffff}, allow},
		{"a high word makes no other of who is inside", "fchown", []uint64{3, garbage | ours.OwnUser, ours.OwnGroup}, allow},
		{"a file is not given to root", "fchownat", []uint64{3, 1, 0, ours.OwnGroup, 0}, no},
		{"a file is not given to another group", "fchown", []uint64{3, ours.OwnUser, 1}, no},
		{"a high word does not hide another", "fchown", []uint64{3, garbage | 7, 0xffffffff}, no},
		{"the group is no user", "fchown", []uint64{3, ours.OwnGroup, 0xffffffff}, no},
	}
	for _, goarch := range Architectures() {
		j := newJudge(t, goarch)
		for _, tt := range tests {
			t.Run(goarch+"/"+tt.name, func(t *testing.T) {
				if got := j.answer(t, j.call(t, tt.call, tt.args...)); got != tt.want {
					t.Errorf("%s%v: got %#x, want %#x", tt.call, tt.args, got, tt.want)
				}
			})
		}
	}
}

func TestForeignEntriesAreRefused(t *testing.T) {
	j := newJudge(t, "amd64")
	native := uint32(architectures["amd64"].ID)
	tests := []struct {
		name string
		call call
		want uint32
	}{
		{"a 32-bit system call kills", call{number: 3, arch: 0x40000003}, kill},
		{"an unknown architecture kills", call{number: 0, arch: 0}, kill},
		{"segments of a program's own do not exist", j.call(t, "modify_ldt"), uint32(errno(unix.ENOSYS))},
		{"x32 does not exist", call{number: 0x40000000, arch: native}, uint32(errno(unix.ENOSYS))},
		{"x32 variants without the bit do not exist", call{number: 521, arch: native}, uint32(errno(unix.ENOSYS))},
		{"a call not yet known does not exist", call{number: highest(architectures["amd64"]) + 1, arch: native}, uint32(errno(unix.ENOSYS))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := j.answer(t, tt.call); got != tt.want {
				t.Errorf("got %#x, want %#x", got, tt.want)
			}
		})
	}
}

// TestAnswerDependsOnListedArgumentsAlone compares the compiled program with a direct
// evaluation of the rules, for any call and any arguments.
func TestAnswerDependsOnListedArgumentsAlone(t *testing.T) {
	for _, goarch := range Architectures() {
		j, info := newJudge(t, goarch), architectures[goarch]
		top := highest(info)
		words := rapid.SampledFrom([]uint64{0, 1, 2, 4, 16, 40, 0x5412, 0x541c, 0x5423, 0x80, 0x10000000, 0xffffffff, 1 << 40, ours.OwnUser, ours.OwnGroup})
		rapid.Check(t, func(t *rapid.T) {
			c := call{number: rapid.Uint32Range(0, top).Draw(t, "number"), arch: uint32(info.ID)}
			for i := range c.args {
				c.args[i] = rapid.OneOf(words, rapid.Uint64()).Draw(t, "arg")
			}
			want := read(info.SyscallNumbers[int(c.number)], c)
			if got := j.answer(t, c); got != want {
				t.Fatalf("%s %+v: got %#x, want %#x", info.SyscallNumbers[int(c.number)], c, got, want)
			}
		})
	}
}

// read evaluates the rules for c, the call of that name.
func read(name string, c call) uint32 {
	for _, r := range slices.Concat(rules(), socketRules()) {
		for _, n := range r.calls {
			if n == name && holds(r.when, c) {
				return uint32(r.action)
			}
		}
	}
	for _, o := range chowns {
		user, group := uint32(c.args[o.user]), uint32(c.args[o.user+1])
		if o.call == name && (user != unchanged && user != ours.OwnUser || group != unchanged && group != ours.OwnGroup) {
			return uint32(errno(unix.EPERM))
		}
	}
	return allow
}

func holds(when []seccomp.Condition, c call) bool {
	for _, w := range when {
		value := c.args[w.Argument]
		ok := false
		switch w.Operation {
		case seccomp.BitsSet:
			ok = value&w.Value != 0
		case seccomp.BitsNotSet:
			ok = value&w.Value == 0
		case seccomp.NotEqual:
			ok = value != w.Value
		}
		if !ok {
			return false
		}
	}
	return true
}

func TestEmbeddedFiltersAreCompiledFromTheseRules(t *testing.T) {
	for _, goarch := range Architectures() {
		for name, compile := range map[string]func(string) ([]byte, error){"filter": Compile, "sockets": CompileSockets} {
			name += "_" + goarch + ".bpf"
			want, err := compile(goarch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join("..", name))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s is stale: run go generate in internal/confine/seccomp", name)
			}
		}
	}
}
