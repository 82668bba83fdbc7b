// Package authority is a certificate authority that one sandbox trusts, and nobody else. It signs
// for whom the caller says: hosts whose connections are intercepted. The supervisor makes it, and
// passes it to one egress process after another. Its key is in the memory of these two only.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
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

// Pair is an authority as one process passes it to another: its certificate (RFC 5280) and its
// private key (SEC 1), both in DER.
type Pair struct {
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
}

// New makes an authority. Errors: Internal.
func New() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, failed(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "agentfense sandbox " + rand.Text()[:8]},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	p := Pair{}
	if p.Certificate, err = x509.CreateCertificate(rand.Reader, template, template, key.Public(), key); err != nil {
		return Pair{}, failed(err)
	}
	if p.Key, err = x509.MarshalECPrivateKey(key); err != nil {
		return Pair{}, failed(err)
	}
	return p, nil
}

// PEM is the authority's certificate.
func (p Pair) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate})
}

// Open returns what signs with the key of p. Errors: Internal, which tell nothing of the key.
func Open(p Pair) (*Authority, error) {
	certificate, err := x509.ParseCertificate(p.Certificate)
	if err != nil || !certificate.IsCA {
		return nil, failed(errors.New("malformed certificate"))
	}
	key, err := x509.ParseECPrivateKey(p.Key)
	if err != nil || !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, failed(errors.New("the key is not that of the certificate"))
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, failed(err)
	}
	return &Authority{certificate: certificate, key: key, leafKey: leafKey, leaves: map[allowlist.Host]*tls.Certificate{}}, nil
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
