// Package refused tells what the kernel refuses in a namespace where every address is local: a
// connection to an address and port at which nothing listens, and a datagram.
//
// The kernel answers these by a reset or by a message of ICMP, which raw sockets see. Filters in
// the kernel drop all other packets before they are copied, so that connections cost what they did.
// (A packet socket would see the same, but closing one takes the kernel ten milliseconds.) The
// loopback addresses of the sandbox itself do not count: they lead nowhere else.
package refused

import (
	"encoding/binary"
	"net/netip"
	"slices"

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

// Source is a raw socket that receives the kernel's answers, those alone that Filter keeps.
type Source struct {
	Family, Protocol int
	Filter           []unix.SockFilter // for SO_ATTACH_FILTER
}

// Sources are the sockets that see what is refused: resets that acknowledge the first segment of a
// connection, which have the sequence number 0 (RFC 9293, 3.10.7.1), and messages that a port is
// unreachable. A raw socket of IPv4 has packets from their IP header on, one of IPv6 what is behind
// that header (raw(7), RFC 3542).
func Sources() ([]Source, error) {
	sources := []Source{
		{Family: unix.AF_INET, Protocol: unix.IPPROTO_TCP},
		{Family: unix.AF_INET, Protocol: unix.IPPROTO_ICMP},
		{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP},
		{Family: unix.AF_INET6, Protocol: unix.IPPROTO_ICMPV6},
	}
	for i, program := range [][]bpf.Instruction{tcp4(), icmp4(), tcp6(), icmp6()} {
		raw, err := bpf.Assemble(program)
		if err != nil {
			return nil, err
		}
		for _, r := range raw {
			sources[i].Filter = append(sources[i].Filter, unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K})
		}
	}
	return sources, nil
}

const (
	isReset, resetFlags = rstFlag | ackFlag, rstFlag | ackFlag | synFlag | finFlag

	// networkHeader is where a filter finds the header of IP, wherever the packet begins
	// (SKF_NET_OFF of linux/filter.h).
	networkHeader = 0xfff00000
)

var drop, keep = bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: snapLength}

// only drops a packet unless the number just loaded is value.
func only(value uint32) []bpf.Instruction {
	return []bpf.Instruction{bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: 1}, drop}
}

func tcp4() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: tcpFlags, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: resetFlags}},
		only(isReset),
		[]bpf.Instruction{bpf.LoadIndirect{Off: tcpSequence, Size: 4}}, only(0),
		notLoopback4(),
	)
}

func icmp4() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadMemShift{Off: 0}, bpf.LoadIndirect{Off: 0, Size: 2}}, only(icmpUnreachable<<8|icmpPort),
		notLoopback4(),
	)
}

func notLoopback4() []bpf.Instruction {
	return []bpf.Instruction{bpf.LoadAbsolute{Off: source4, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 127, SkipTrue: 1}, drop, keep}
}

func tcp6() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: tcpFlags, Size: 1}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: resetFlags}}, only(isReset),
		[]bpf.Instruction{bpf.LoadAbsolute{Off: tcpSequence, Size: 4}}, only(0),
		notLoopback6(networkHeader+source6),
	)
}

// icmp6 keeps messages by the address in the packet that was refused, since the kernel sends all
// from ::1.
func icmp6() []bpf.Instruction {
	return slices.Concat(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 2}}, only(icmp6Unreachable<<8|icmp6Port),
		notLoopback6(icmpHeader+target6),
	)
}

// notLoopback6 drops a packet if the address at an offset is ::1, and keeps every other one.
func notLoopback6(at uint32) (program []bpf.Instruction) {
	words := []uint32{0, 0, 0, 1}
	for i, word := range words {
		left := uint8(2 * (len(words) - 1 - i)) // instructions before drop
		program = append(program, bpf.LoadAbsolute{Off: at + 4*uint32(i), Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: word, SkipTrue: left + 1})
	}
	return append(program, drop, keep)
}

// Parse4 reads a packet of IPv4 that a filter keeps. It reports false for every other one, for what
// the sandbox refuses itself at its loopback addresses, and for what is malformed.
func Parse4(packet []byte) (Attempt, bool) {
	h, ok := parseIP(packet)
	if !ok {
		return Attempt{}, false
	}
	return parse(h)
}

// Parse6 is Parse4 for what is behind the header of a packet of IPv6, of a protocol and from an
// address.
func Parse6(from netip.Addr, protocol byte, rest []byte) (Attempt, bool) {
	return parse(header{source: from, protocol: protocol, rest: rest})
}

func parse(h header) (r Attempt, ok bool) {
	switch h.protocol {
	case unix.IPPROTO_TCP:
		if len(h.rest) < tcpFlags+1 || h.rest[tcpFlags]&resetFlags != isReset || binary.BigEndian.Uint32(h.rest[tcpSequence:]) != 0 {
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
