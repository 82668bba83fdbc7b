// Package refused tells what the kernel refuses in a namespace where every address is local: a
// connection to an address and port at which nothing listens, and a datagram.
//
// The kernel answers these by a reset or by a message of ICMP, which a packet socket on lo sees. A
// filter in the kernel drops all other packets before they are copied, so that connections cost
// what they did. The loopback addresses of the sandbox itself do not count: they lead nowhere else.
package refused

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attempt is what a program inside tried to reach.
type Attempt struct {
	At       netip.AddrPort
	Protocol string // "tcp", "udp", or the number of another one
}

const (
	snapLength = 128 // bytes: two headers of IP and one of UDP are fewer

	// Flags of TCP (RFC 9293, 3.1).
	finFlag, synFlag, rstFlag, ackFlag = 0x01, 0x02, 0x04, 0x10

	tcpSequence, tcpFlags = 4, 13 // offsets in a header of TCP

	// Offsets in a header of IPv4 (RFC 791), and of IPv6 (RFC 8200), which has a fixed size.
	protocol4, source4, target4 = 9, 12, 16
	protocol6, source6, target6 = 6, 8, 24
	header6                     = 40

	icmpHeader = 8 // before the packet that was refused (RFC 792, RFC 4443)

	icmpUnreachable, icmpPort   = 3, 3
	icmp6Unreachable, icmp6Port = 1, 4
)

// Filter is a program for a packet socket (SO_ATTACH_FILTER) of the type SOCK_DGRAM, which sees
// packets from their IP header on. It keeps the answers to what is refused: resets that acknowledge
// the first segment of a connection, which have the sequence number 0 (RFC 9293, 3.10.7.1), and
// messages that a port is unreachable.
func Filter() ([]unix.SockFilter, error) {
	drop, keep := bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: snapLength}
	const isReset, resetFlags = rstFlag | ackFlag, rstFlag | ackFlag | synFlag | finFlag
	only := func(value uint32) []bpf.Instruction {
		return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}, drop}
	}
	join := func(parts ...[]bpf.Instruction) (all []bpf.Instruction) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	one := func(i ...bpf.Instruction) []bpf.Instruction { return i }
	tcp4 := join(
		one(bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: tcpFlags, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: resetFlags}),
		only(isReset),
		one(bpf.LoadIndirect{Off: tcpSequence, Size: 4}), only(0),
	)
	udp4 := join(
		one(bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 0, Size: 2}), only(icmpUnreachable<<8|icmpPort),
	)
	notLoopback4 := one(bpf.LoadAbsolute{Off: source4, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 127, SkipTrue: 1}, drop, keep)
	tcp6 := join(
		one(bpf.LoadAbsolute{Off: header6 + tcpFlags, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: resetFlags}),
		only(isReset),
		one(bpf.LoadAbsolute{Off: header6 + tcpSequence, Size: 4}), only(0),
	)
	udp6 := join(
		one(bpf.LoadAbsolute{Off: header6, Size: 2}), only(icmp6Unreachable<<8|icmp6Port),
	)
	// The kernel sends messages of ICMPv6 from ::1, so those have the address in the packet that
	// was refused.
	notLoopback6 := func(at uint32) []bpf.Instruction {
		return one(
			bpf.LoadAbsolute{Off: at, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 7},
			bpf.LoadAbsolute{Off: at + 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 5},
			bpf.LoadAbsolute{Off: at + 8, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3},
			bpf.LoadAbsolute{Off: at + 12, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 1, SkipTrue: 1}, drop, keep,
		)
	}
	// isProtocol goes to what follows part unless the protocol is the one that part is for.
	isProtocol := func(protocol uint32, part []bpf.Instruction) []bpf.Instruction {
		return append(one(bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocol, SkipTrue: uint8(len(part))}), part...)
	}
	v4 := join(
		one(bpf.LoadAbsolute{Off: protocol4, Size: 1}),
		isProtocol(unix.IPPROTO_TCP, join(tcp4, notLoopback4)), isProtocol(unix.IPPROTO_ICMP, join(udp4, notLoopback4)), one(drop),
	)
	v6 := join(
		one(bpf.LoadAbsolute{Off: protocol6, Size: 1}),
		isProtocol(unix.IPPROTO_TCP, join(tcp6, notLoopback6(source6))), isProtocol(unix.IPPROTO_ICMPV6, join(udp6, notLoopback6(header6+icmpHeader+target6))), one(drop),
	)
	raw, err := bpf.Assemble(join(
		one(bpf.LoadAbsolute{Off: 0, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}),
		isProtocol(4, v4), isProtocol(6, v6), one(drop),
	))
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, err
}

// Parse reads a packet that Filter keeps. It reports false for every other one, for what the
// sandbox refuses itself at its loopback addresses, and for what is malformed.
func Parse(packet []byte) (Attempt, bool) {
	h, ok := parseIP(packet)
	if !ok {
		return Attempt{}, false
	}
	var r Attempt
	switch h.protocol {
	case unix.IPPROTO_TCP:
		if len(h.rest) < tcpFlags+1 || h.rest[tcpFlags]&(rstFlag|ackFlag|synFlag|finFlag) != rstFlag|ackFlag || binary.BigEndian.Uint32(h.rest[tcpSequence:]) != 0 {
			return Attempt{}, false
		}
		r = Attempt{netip.AddrPortFrom(h.source, binary.BigEndian.Uint16(h.rest)), "tcp"}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		if r, ok = parseUnreachable(h); !ok {
			return Attempt{}, false
		}
	default:
		return Attempt{}, false
	}
	return r, !r.At.Addr().IsLoopback()
}

// parseUnreachable reads what was refused, of which a message of ICMP has the beginning.
func parseUnreachable(h header) (Attempt, bool) {
	want := [2]byte{icmpUnreachable, icmpPort}
	if h.protocol == unix.IPPROTO_ICMPV6 {
		want = [2]byte{icmp6Unreachable, icmp6Port}
	}
	if len(h.rest) < icmpHeader || [2]byte(h.rest) != want {
		return Attempt{}, false
	}
	inner, ok := parseIP(h.rest[icmpHeader:])
	if !ok || len(inner.rest) < 4 {
		return Attempt{}, false
	}
	return Attempt{netip.AddrPortFrom(inner.target, binary.BigEndian.Uint16(inner.rest[2:])), protocolName(inner.protocol)}, true
}

func protocolName(number byte) string {
	switch number {
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_UDPLITE:
		return "udplite"
	}
	return "another"
}

// header is what counts of a header of IP.
type header struct {
	source, target netip.Addr
	protocol       byte
	rest           []byte // after it
}

func parseIP(packet []byte) (header, bool) {
	if len(packet) == 0 {
		return header{}, false
	}
	switch packet[0] >> 4 {
	case 4:
		size := 4 * int(packet[0]&0xf)
		if size < target4+4 || len(packet) < size {
			return header{}, false
		}
		return header{netip.AddrFrom4([4]byte(packet[source4:])), netip.AddrFrom4([4]byte(packet[target4:])), packet[protocol4], packet[size:]}, true
	case 6:
		if len(packet) < header6 {
			return header{}, false
		}
		return header{netip.AddrFrom16([16]byte(packet[source6:])), netip.AddrFrom16([16]byte(packet[target6:])), packet[protocol6], packet[header6:]}, true
	}
	return header{}, false
}
