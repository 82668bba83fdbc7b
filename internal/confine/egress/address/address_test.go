package address

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

func TestOnlyPublicAddressesAreDialled(t *testing.T) {
	tests := []struct {
		name string
		addr string
		want bool
	}{
		{"a public address", "93.184.216.34", true},
		{"a public IPv6 address", "2606:2800:220:1::1", true},
		{"a public address in an IPv6 one", "::ffff:93.184.216.34", true},
		{"a public address behind NAT64", "64:ff9b::5db8:d822", true},
		{"a public address behind 6to4", "2002:5db8:d822::1", true},
		{"no address", "0.0.0.0", false},
		{"this network", "0.1.2.3", false},
		{"loopback", "127.0.0.1", false},
		{"another loopback address", "127.9.9.9", false},
		{"IPv6 loopback", "::1", false},
		{"no IPv6 address", "::", false},
		{"a private address", "10.0.0.1", false},
		{"a private address of docker", "172.17.0.1", false},
		{"a private address of a home", "192.168.1.1", false},
		{"a unique local address", "fd00:ec2::254", false},
		{"the metadata service", "169.254.169.254", false},
		{"a metadata service in carrier-grade NAT", "100.100.100.200", false},
		{"a metadata service of protocols", "192.0.0.192", false},
		{"the host of an Azure machine", "168.63.129.16", false},
		{"link-local IPv6", "fe80::1", false},
		{"link-local IPv6 with a zone", "fe80::1%eth0", false},
		{"multicast", "224.0.0.251", false},
		{"IPv6 multicast", "ff02::fb", false},
		{"broadcast", "255.255.255.255", false},
		{"class E", "240.0.0.1", false},
		{"an address that stands for a name", "100.64.0.2", false},
		{"documentation", "192.0.2.1", false},
		{"benchmarks", "198.18.0.1", false},
		{"IPv6 documentation", "2001:db8::1", false},
		{"Teredo", "2001::1", false},
		{"site-local IPv6", "fec0::1", false},
		{"an IPv4-compatible address", "::93.184.216.34", false},
		{"loopback in an IPv6 address", "::ffff:127.0.0.1", false},
		{"a private address in an IPv6 one", "::ffff:10.0.0.1", false},
		{"a private address behind NAT64", "64:ff9b::a00:1", false},
		{"the metadata service behind NAT64", "64:ff9b::a9fe:a9fe", false},
		{"a NAT64 of the operator's own", "64:ff9b:1::5db8:d822", false},
		{"loopback behind 6to4", "2002:7f00:1::1", false},
		{"the metadata service behind 6to4", "2002:a9fe:a9fe::1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := CheckPublic(netip.MustParseAddr(tt.addr)); (err == nil) != tt.want {
				t.Errorf("CheckPublic(%s) = %v", tt.addr, err)
			}
		})
	}
}

func TestAddressesOfThisHostAreNotDialled(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "255.255.255.255", "224.0.0.1"} {
		if err := CheckRoute(netip.MustParseAddr(addr)); err == nil {
			t.Errorf("CheckRoute(%s) lets it through", addr)
		}
	}
}

func FuzzAddress(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{0: 0x20, 1: 0x02, 2: 10, 15: 1})
	f.Add([]byte{1: 0x64, 2: 0xff, 3: 0x9b, 12: 10, 15: 1})
	f.Add([]byte{100, 64, 0, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok || CheckPublic(addr) != nil {
			return
		}
		u := addr.Unmap()
		if b := addr.As16(); [2]byte(b[:2]) == [2]byte{0x20, 0x02} { // 6to4
			u = netip.AddrFrom4([4]byte(b[2:6]))
		} else if [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b} { // NAT64
			u = netip.AddrFrom4([4]byte(b[12:]))
		}
		if u.IsPrivate() || u.IsLoopback() || !u.IsGlobalUnicast() || allowlist.Synthetic.Contains(u) {
			t.Errorf("%s is let through", addr)
		}
	})
}

// A host that is short of something is no reason to blame the name.
func TestAnAddressThatCannotBeChecked(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	checked := CheckRoute(netip.MustParseAddr("93.184.216.34"))
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(checked, unix.EMFILE) {
		t.Errorf("got %v", checked)
	}
}
