package network_test

import (
	encoding "encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/test/harness"
)

const reachOut = "reach out"

// reach tries every other way to a host than by an allowed name.
func reach(args []string) int {
	var errs []error
	fails := func(what string, err error, want ...error) {
		for _, w := range want {
			if errors.Is(err, w) {
				return
			}
		}
		errs = append(errs, fmt.Errorf("%s: got %w, want one of %v", what, err, want))
	}
	dial := func(network, address string) error {
		c, err := net.Dial(network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err = c.Read(make([]byte, 1))
		return err
	}
	for _, address := range []string{
		harness.PublicAddr + ":443", harness.OtherAddr + ":80", harness.HostAddr + ":" + args[0], "127.0.0.1:" + args[0], "[::1]:" + args[0],
		harness.Metadata + ":80", "100.64.0.2:80", "100.64.0.77:443", "100.127.255.255:443", "[2606:2800:220:1::1]:443",
	} {
		fails("connect to "+address, dial("tcp", address), unix.ECONNREFUSED, unix.EADDRNOTAVAIL, unix.ENETUNREACH)
	}
	for _, address := range []string{harness.PublicAddr + ":443", "100.64.0.2:443", "8.8.8.8:123"} {
		fails("send to "+address, dial("udp", address), unix.ECONNREFUSED)
	}
	for _, address := range []string{"224.0.0.251:5353", "[ff02::fb]:5353", "255.255.255.255:9"} { // multicast and broadcast
		fails("send to "+address, dial("udp", address), unix.EINVAL, unix.EACCES, unix.ENETUNREACH)
	}
	for name, kind := range map[string][3]int{
		"a raw socket":            {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		"a raw socket of IPv6":    {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		"a raw socket of its own": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW},
		"a socket of ICMP":        {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		"a socket of ICMPv6":      {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
		"a packet socket":         {unix.AF_PACKET, unix.SOCK_RAW, 0},
		"a vsock":                 {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"SCTP":                    {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP},
	} {
		fd, err := unix.Socket(kind[0], kind[1], kind[2])
		if err == nil {
			unix.Close(fd)
		}
		fails(name, err, unix.EPERM, unix.EACCES, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ESOCKTNOSUPPORT)
	}
	fails("an abstract socket of the host", dial("unix", "@agentfense-network-56"), unix.ECONNREFUSED)
	_, err := net.Listen("tcp", "100.64.0.2:443")
	fails("take the place of a host", err, unix.EACCES, unix.EADDRINUSE)
	_, err = net.Listen("tcp", "100.64.0.77:443")
	fails("take the place of a host that is not asked for yet", err, unix.EACCES)
	_, err = net.ListenPacket("udp", "0.0.0.0:53")
	fails("take the place of the resolver", err, unix.EACCES, unix.EADDRINUSE)
	fails("set lo down", setDown(), unix.EPERM)
	fails("remove a route", removeRoute(), unix.EPERM)
	fails("leave the namespace", unix.Setns(0, unix.CLONE_NEWNET), unix.EPERM)
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// wantSocketsOfReach checks which sockets of reach are in the audit log. Of others it may have one
// or none, because another filter may answer first.
func wantSocketsOfReach(t *testing.T, s *harness.Sandbox, others ...string) {
	t.Helper()
	counts, _ := socketRefusals(t, s.Agentfense("audit", s.Name, "--json").Stdout)
	want := map[string]int{
		"raw socket (ICMP)": 2, "raw socket (protocol 255)": 1, "ICMP socket": 2, "packet socket": 1, "vsock socket": 1, "SCTP socket": 1,
	}
	for _, name := range others {
		delete(want, name)
		delete(counts, name)
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Errorf("sockets that are recorded (-want +got):\n%s", diff)
	}
}

// setDown tries to set lo down (netdevice(7)).
func setDown() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// removeRoute tries to remove a route (rtnetlink(7)).
func removeRoute() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const size = unix.SizeofNlMsghdr + unix.SizeofRtMsg
	request := encoding.NativeEndian.AppendUint32(nil, size)
	request = encoding.NativeEndian.AppendUint16(request, unix.RTM_DELROUTE)
	request = encoding.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	request = append(request, make([]byte, size-len(request))...)
	request[unix.SizeofNlMsghdr] = unix.AF_INET
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("an answer of %d bytes: %w", n, err)
	}
	if code := int32(encoding.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// Nothing leads out but a connection to an allowed name.
func TestThereIsNoOtherWayOut(t *testing.T) {
	internet(t)
	abstract, err := net.Listen("unix", "@agentfense-network-56")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abstract.Close() })
	host, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	_, port, _ := net.SplitHostPort(host.Addr().String())
	eachUser(t, func(t *testing.T, who ...harness.Option) {
		s := harness.New(t, binary, nil, who...)
		if r := s.RunProgram(reachOut, []string{port}, "--allow-net", "example.com"); r.Code != 0 {
			t.Errorf("exit %d\n%s", r.Code, r.Stderr)
		}
		wantSocketsOfReach(t, s)
	})
}
