package denylist

import (
	"fmt"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	ours "github.com/agentfense/agentfense/internal/confine/seccomp"
)

// socketRules are the sockets that no program inside gets, in a filter of their own: PID 1
// installs it so that it learns of each attempt (docs/adr/0066). seccomp.SocketErrno has the
// same rules, for the answers of PID 1.
//
// The kernel refuses the last ones by itself, with the same errno, because they need a capability
// that no process inside has. Those of ICMP need a group instead: where the kernel gives it to the
// processes inside, seccomp.ConfineSockets leaves out these two, which alone answer EACCES.
func socketRules() []rule {
	return []rule{
		// Netlink only for addresses and routes. The other protocols reach code for
		// administrators (netfilter, IPsec, audit), or report on the whole host in any
		// namespace (connector).
		{
			action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket", "socketpair"},
			when: append(lowWordIs(0, unix.AF_NETLINK), anyBit(2, ^uint32(0))),
		},
		// Transports for which the kernel loads a module on request. Few programs use them,
		// and they are old code with old bugs (CVE-2017-6074).
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, unix.IPPROTO_SCTP)},
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, unix.IPPROTO_DCCP)},
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, ours.ProtocolL2TP)},
		{action: errno(unix.EPROTONOSUPPORT), calls: []string{"socket"}, when: lowWordIs(2, ours.ProtocolSMC)},
		{action: errno(unix.ESOCKTNOSUPPORT), calls: []string{"socket"}, when: maskedIs(1, ours.SocketTypes, unix.SOCK_DCCP)},
		// Sockets only of the families that a network namespace contains. vsock would reach
		// the hypervisor, and the other families are rarely used code.
		{
			action: errno(unix.EAFNOSUPPORT), calls: []string{"socket", "socketpair"},
			when: noneOf(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK),
		},
		// The kernel answers EINVAL to other bits of the type, and to a protocol of more than
		// eight bits, before it looks at rights.
		{action: errno(unix.EPERM), calls: []string{"socket"}, when: internet(unix.AF_INET, unix.SOCK_PACKET)},
		{action: errno(unix.EPERM), calls: []string{"socket"}, when: append(internet(unix.AF_INET, unix.SOCK_RAW), byteNotZero(2)...)},
		{action: errno(unix.EPERM), calls: []string{"socket"}, when: append(internet(unix.AF_INET6, unix.SOCK_RAW), byteNotZero(2)...)},
		{action: errno(unix.EACCES), calls: []string{"socket"}, when: append(internet(unix.AF_INET, unix.SOCK_DGRAM), lowWordIs(2, unix.IPPROTO_ICMP)...)},
		{action: errno(unix.EACCES), calls: []string{"socket"}, when: append(internet(unix.AF_INET6, unix.SOCK_DGRAM), lowWordIs(2, unix.IPPROTO_ICMPV6)...)},
	}
}

// internet is true for a socket of that family and type.
func internet(family, kind uint32) []seccomp.Condition {
	const valid = ours.SocketTypes | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	conditions := append(lowWordIs(0, family), maskedIs(1, ours.SocketTypes, kind)...)
	return append(conditions, seccomp.Condition{Argument: 1, Operation: seccomp.BitsNotSet, Value: uint64(^uint32(valid))})
}

// byteNotZero is true if the argument's low word is from 1 to 255.
func byteNotZero(arg uint32) []seccomp.Condition {
	return []seccomp.Condition{anyBit(arg, 0xff), {Argument: arg, Operation: seccomp.BitsNotSet, Value: 0xffffff00}}
}

// CompileSockets returns the filter of sockets for goarch, in the form of Compile. Its errors are
// what seccomp.ConfineSockets turns into notifications.
func CompileSockets(goarch string) ([]byte, error) {
	instructions, err := assembleSockets(goarch)
	if err != nil {
		return nil, err
	}
	return encode(goarch, instructions)
}

func assembleSockets(goarch string) ([]bpf.Instruction, error) {
	info, ok := architectures[goarch]
	if !ok {
		return nil, fmt.Errorf("compile filter: unknown architecture %q", goarch)
	}
	instructions, err := compileRules(info, native(info), socketRules())
	if err != nil {
		return nil, err
	}
	return append(instructions, bpf.RetConstant{Val: uint32(seccomp.ActionAllow)}), nil
}
