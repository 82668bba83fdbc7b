package authority

import (
	"crypto/ecdsa"
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// made is a new authority.
func made(t *testing.T) (Pair, *Authority) {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	return p, a
}

// verify reports whether a program that trusts a takes its certificate of one host for that of
// another.
func verify(t *testing.T, trusted Pair, a *Authority, of allowlist.Host, name string) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted.PEM()) {
		t.Fatal("no certificate in PEM")
	}
	leaf, err := a.Certificate(of)
	if err != nil {
		t.Fatal(err)
	}
	_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
	return err
}

func TestACertificateIsForItsHostOnly(t *testing.T) {
	p, a := made(t)
	for _, host := range []allowlist.Host{"example.com", "10.1.2.3", "2001:db8::1"} {
		name := string(host)
		if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
			name = "[" + name + "]"
		}
		if err := verify(t, p, a, host, name); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, name := range []string{"www.example.com", "example.net", "10.1.2.3"} {
		if verify(t, p, a, "example.com", name) == nil {
			t.Errorf("a certificate of example.com is taken for %s", name)
		}
	}
	leaf, err := a.Certificate("example.com")
	if err != nil || leaf.Leaf.IsCA || time.Until(leaf.Leaf.NotAfter) > leafValidity {
		t.Errorf("the certificate of a host is a CA's, or valid for long: %v, %v", leaf.Leaf.NotAfter, err)
	}
	if _, another := made(t); verify(t, p, another, "example.com", "example.com") == nil {
		t.Error("two authorities have one key")
	}
}

// The process that takes the place of another goes on with the authority that programs trust.
func TestAnAuthorityIsPassedOn(t *testing.T) {
	p, _ := made(t)
	next, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(t, p, next, "example.com", "example.com"); err != nil {
		t.Error(err)
	}
	other, a := made(t)
	leaf, err := a.Certificate("example.com")
	if err != nil {
		t.Fatal(err)
	}
	leafKey, err := x509.MarshalECPrivateKey(leaf.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]Pair{
		"nothing": {}, "no key": {Certificate: p.Certificate}, "no certificate": {Key: p.Key}, "the key of another": {p.Certificate, other.Key},
		"that of a host": {leaf.Leaf.Raw, leafKey},
	} {
		if _, err := Open(bad); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	_, a := made(t)
	get := func(h allowlist.Host) *x509.Certificate {
		t.Helper()
		c, err := a.Certificate(h)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	first := get("example.com")
	if get("example.com") != first {
		t.Error("it was made again")
	}
	first.NotAfter = time.Now().Add(leafValidity / 3)
	if get("example.com") == first {
		t.Error("an old one is used")
	}
	for i := range 2 * maxLeaves {
		get(allowlist.Host(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()))
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d are kept", len(a.leaves))
	}
}
