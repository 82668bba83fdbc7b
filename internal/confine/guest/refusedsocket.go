package guest

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/seccomp"
)

// RefusedSocket is a socket that programs inside tried to get, and that none gets.
type RefusedSocket struct {
	Kind    string // such as "raw socket (ICMP)"; of few words
	Program string // name of the thread that tried; any bytes
	Count   int    // attempts alike, at least 1
}

// OtherSockets is the kind of attempts that are not distinguished.
const OtherSockets = "(others)"

// families are the names of address_families(7), by number.
var families = map[uint32]string{
	unix.AF_PACKET: "packet", unix.AF_VSOCK: "vsock", unix.AF_ALG: "alg", unix.AF_BLUETOOTH: "Bluetooth", unix.AF_CAN: "CAN",
	unix.AF_KEY: "IPsec key", unix.AF_XDP: "XDP", unix.AF_TIPC: "TIPC", unix.AF_NFC: "NFC", unix.AF_RDS: "RDS", unix.AF_PPPOX: "PPPoX",
	unix.AF_QIPCRTR: "Qualcomm IPC router", unix.AF_SMC: "SMC", unix.AF_MCTP: "MCTP", unix.AF_KCM: "KCM", unix.AF_IB: "InfiniBand",
	unix.AF_AX25: "AX.25", unix.AF_APPLETALK: "AppleTalk", unix.AF_X25: "X.25", unix.AF_LLC: "LLC", unix.AF_PHONET: "Phonet",
	unix.AF_IEEE802154: "IEEE 802.15.4", unix.AF_RXRPC: "RxRPC",
}

// socketKind names a socket by the arguments of socket(2), the type without flags. Those of the
// internet have more than one reason to be refused.
func socketKind(family, kind, protocol uint32) string {
	if family == othersFamily {
		return OtherSockets
	}
	switch protocol {
	case unix.IPPROTO_SCTP:
		return "SCTP socket"
	case unix.IPPROTO_DCCP:
		return "DCCP socket"
	case seccomp.ProtocolL2TP:
		return "L2TP socket"
	case seccomp.ProtocolSMC:
		return "SMC socket"
	}
	switch {
	case family == unix.AF_NETLINK:
		return fmt.Sprintf("netlink socket (protocol %d)", protocol)
	case kind == unix.SOCK_DCCP:
		return "DCCP socket"
	case family == unix.AF_INET && kind == unix.SOCK_PACKET:
		return "packet socket"
	case family == unix.AF_INET || family == unix.AF_INET6:
		return internetKind(kind, protocol)
	case families[family] != "":
		return families[family] + " socket"
	}
	return fmt.Sprintf("socket of family %d", family)
}

func internetKind(kind, protocol uint32) string {
	name := fmt.Sprintf("protocol %d", protocol)
	switch protocol {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		name = "ICMP"
	case unix.IPPROTO_TCP:
		name = "TCP"
	case unix.IPPROTO_UDP:
		name = "UDP"
	}
	if kind == unix.SOCK_RAW {
		return "raw socket (" + name + ")"
	}
	return name + " socket"
}
