package auth_test

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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/testenv"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/auth"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	a := authority{t: t, dir: t.TempDir()}
	a.cert, a.key, _, _ = a.make("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// make signs a certificate and writes it and its key as PEM files.
func (a authority) make(commonName string, template *x509.Certificate) (cert *x509.Certificate, key *ecdsa.PrivateKey, certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.t, err)
	template.SerialNumber, template.Subject = big.NewInt(1), pkix.Name{CommonName: commonName}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(a.t, err)
	cert, err = x509.ParseCertificate(der)
	must(a.t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	certFile, keyFile = filepath.Join(a.dir, commonName+".pem"), filepath.Join(a.dir, commonName+".key")
	must(a.t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(a.t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return cert, key, certFile, keyFile
}

func (a authority) client(commonName string) []tls.Certificate {
	_, _, cert, key := a.make(commonName, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(a.t, err)
	return []tls.Certificate{pair}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shake connects a client to a server and returns what the server knows of it.
func shake(t *testing.T, server, client *tls.Config) (*tls.ConnectionState, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c := tls.Client(far, client)
		if c.HandshakeContext(t.Context()) == nil {
			c.Read(make([]byte, 1)) // in TLS 1.3 the refusal comes after the handshake
		}
		far.Close()
	}()
	c := tls.Server(near, server)
	err := c.HandshakeContext(t.Context())
	state := c.ConnectionState()
	near.Close()
	<-gone
	return &state, err
}

func TestMutualTLS(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	_, _, cert, key := a.make("localhost", &x509.Certificate{DNSNames: []string{"localhost"}})
	server, err := auth.ServerTLS(config.TLS{Cert: cert, Key: key, ClientCA: filepath.Join(a.dir, "ca.pem")})
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := func(certificates []tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certificates}
	}

	w := newWorld(t)
	state, err := shake(t, server, client(a.client("alice")))
	must(t, err)
	caller, err := w.authenticator(t, auth.Options{}).Identify(t.Context(), auth.Credentials{TLS: state})
	if err != nil || caller.Owner != "alice" {
		t.Errorf("Identify = %+v, %v, want alice", caller, err)
	}
	for name, certificates := range map[string][]tls.Certificate{"no certificate": nil, "a stranger's certificate": stranger.client("alice")} {
		if _, err := shake(t, server, client(certificates)); err == nil {
			t.Errorf("%s was let in", name)
		}
	}
	old := client(a.client("bob"))
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, err := shake(t, server, old); err == nil {
		t.Error("TLS 1.1 was let in")
	}

	// Without a client CA nobody is asked for a certificate.
	server, err = auth.ServerTLS(config.TLS{Cert: cert, Key: key})
	must(t, err)
	state, err = shake(t, server, client(stranger.client("alice")))
	must(t, err)
	_, err = w.authenticator(t, auth.Options{}).Identify(t.Context(), auth.Credentials{TLS: state})
	wantKind(t, err, errdefs.Unauthenticated)
}

func TestAForeignKeyIsRefused(t *testing.T) {
	testenv.Root(t)
	_, _, cert, key := newAuthority(t).make("s", new(x509.Certificate))
	must(t, os.Chown(key, 12345, -1))
	_, err := auth.ServerTLS(config.TLS{Cert: cert, Key: key})
	wantKind(t, err, errdefs.Precondition)
}

func TestServerTLSRefuses(t *testing.T) {
	a, b := newAuthority(t), newAuthority(t)
	_, _, cert, key := a.make("s", new(x509.Certificate))
	_, _, _, otherKey := b.make("s", new(x509.Certificate))
	copyOf := func(name string, mode os.FileMode) string {
		text, err := os.ReadFile(key)
		must(t, err)
		path := filepath.Join(a.dir, name)
		must(t, writeFile(path, string(text), mode))
		return path
	}
	for name, tt := range map[string]struct {
		tls  config.TLS
		kind errdefs.Kind
	}{
		"a key that the group can read":   {config.TLS{Cert: cert, Key: copyOf("group", 0o640)}, errdefs.Precondition},
		"a key that others can read":      {config.TLS{Cert: cert, Key: copyOf("others", 0o604)}, errdefs.Precondition},
		"a key that others can write":     {config.TLS{Cert: cert, Key: copyOf("writers", 0o602)}, errdefs.Precondition},
		"a certificate that is not there": {config.TLS{Cert: a.dir + "/no", Key: key}, errdefs.NotFound},
		"a key that is not there":         {config.TLS{Cert: cert, Key: a.dir + "/no"}, errdefs.NotFound},
		"the key of another":              {config.TLS{Cert: cert, Key: otherKey}, errdefs.Invalid},
		"a CA that is not there":          {config.TLS{Cert: cert, Key: key, ClientCA: a.dir + "/no"}, errdefs.NotFound},
		"a CA without a certificate":      {config.TLS{Cert: cert, Key: key, ClientCA: key}, errdefs.Invalid},
	} {
		got, err := auth.ServerTLS(tt.tls)
		if got != nil {
			t.Errorf("%s: got a configuration", name)
		}
		wantKind(t, err, tt.kind)
	}
	if got, err := auth.ServerTLS(config.TLS{}); got != nil || err != nil {
		t.Errorf("ServerTLS of nothing = %v, %v", got, err)
	}
}
