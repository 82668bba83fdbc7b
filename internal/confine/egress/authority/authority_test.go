package authority

import (
	"crypto/x509"
	"net/netip"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
)

// verify reports whether a program that trusts a takes its certificate of one host for that of
// another.
func verify(t *testing.T, a *Authority, of allowlist.Host, name string) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
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
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []allowlist.Host{"example.com", "10.1.2.3", "2001:db8::1"} {
		name := string(host)
		if addr, err := netip.ParseAddr(name); err == nil && addr.Is6() {
			name = "[" + name + "]"
		}
		if err := verify(t, a, host, name); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, name := range []string{"www.example.com", "example.net", "10.1.2.3"} {
		if verify(t, a, "example.com", name) == nil {
			t.Errorf("a certificate of example.com is taken for %s", name)
		}
	}
	leaf, err := a.Certificate("example.com")
	if err != nil || leaf.Leaf.IsCA || time.Until(leaf.Leaf.NotAfter) > leafValidity {
		t.Errorf("the certificate of a host is a CA's, or valid for long: %v, %v", leaf.Leaf.NotAfter, err)
	}
	if another, err := New(); err != nil || verify(t, another, "example.com", "example.com") != nil {
		t.Fatal(err)
	} else if leaf, _ := another.Certificate("example.com"); leaf.Leaf.CheckSignatureFrom(a.certificate) == nil {
		t.Error("two authorities have one key")
	}
}

func TestCertificatesAreKeptAndRenewed(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
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

func TestOnlyOneCertificateOfAnAuthorityIsTaken(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Certificate("example.com")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Check(a.PEM()); err != nil || string(got) != string(a.PEM()) {
		t.Errorf("got %s, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": "", "two": string(a.PEM()) + string(a.PEM()), "another text": "x" + "\n", "that of a host": string(encode(leaf.Leaf.Raw)),
		"a text behind it": string(a.PEM()) + "x",
	} {
		if _, err := Check([]byte(text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
