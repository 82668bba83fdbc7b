// Package authority is a certificate authority that one sandbox trusts, and nobody else. Its key
// exists in this process only, and it signs for whom the caller says: hosts whose connections are
// intercepted.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/agentfense/agentfense/internal/confine/egress/allowlist"
	"github.com/agentfense/agentfense/internal/lib/errdefs"
)

const (
	// validity is longer than a sandbox runs.
	validity = 5 * 365 * 24 * time.Hour
	// leafValidity is how long a certificate of a host is valid. One that is older than half of it
	// is not used any more.
	leafValidity = 24 * time.Hour
	// clockSkew is how far a clock may be set back later.
	clockSkew = 24 * time.Hour
	// maxLeaves bounds the certificates that are kept.
	maxLeaves = 256
)

// Authority signs certificates of hosts. It is safe for concurrent use.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	leafKey     *ecdsa.PrivateKey // of all hosts

	mu     sync.Mutex
	leaves map[allowlist.Host]*tls.Certificate
}

// New makes an authority. Errors: Internal.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, failed(err)
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, failed(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "agentfense sandbox " + rand.Text()[:8]},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, failed(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, failed(err)
	}
	return &Authority{certificate: certificate, key: key, leafKey: leafKey, leaves: map[allowlist.Host]*tls.Certificate{}}, nil
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return encode(a.certificate.Raw) }

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Check returns the one certificate of an authority that a text has, in its usual form. Errors:
// Internal.
func Check(text []byte) ([]byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		return nil, errdefs.New(errdefs.Internal, "certificate authority: not one certificate")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !certificate.IsCA {
		return nil, errdefs.New(errdefs.Internal, "certificate authority: malformed certificate")
	}
	return encode(certificate.Raw), nil
}

// Certificate returns a certificate of a host with its key. Errors: Internal.
func (a *Authority) Certificate(h allowlist.Host) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.leaves[h]; known != nil && time.Until(known.Leaf.NotAfter) > leafValidity/2 {
		return known, nil
	}
	leaf, err := a.sign(h)
	if err != nil {
		return nil, failed(err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[h] = leaf
	return leaf, nil
}

func (a *Authority) sign(h allowlist.Host) (*tls.Certificate, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, err := netip.ParseAddr(string(h)); err == nil {
		template.IPAddresses = []net.IP{addr.AsSlice()}
	} else {
		template.DNSNames = []string{string(h)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, a.leafKey.Public(), a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leafKey, Leaf: leaf}, err
}

// serial is a random serial number (RFC 5280, 4.1.2.2).
func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // it never fails
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

func failed(err error) error { return errdefs.New(errdefs.Internal, "certificate authority: %w", err) }
