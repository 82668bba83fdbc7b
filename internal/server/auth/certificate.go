package auth

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"unicode"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/safefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// certificateCaller is the owner that the client's certificate names, with
// every scope. There is none, and the zero Caller, if no certificate was
// verified, or if its common name is empty.
func certificateCaller(state *tls.ConnectionState) (Caller, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Caller{}, nil
	}
	owner := state.VerifiedChains[0][0].Subject.CommonName
	switch {
	case owner == "":
		return Caller{}, nil
	case owner != strings.TrimSpace(owner) || strings.ContainsFunc(owner, func(r rune) bool { return !unicode.IsPrint(r) }):
		return Caller{}, errdefs.New(errdefs.Unauthenticated, "the certificate's common name is no owner's: it begins or ends with a space, or has what cannot be printed")
	}
	return Caller{Name: "certificate " + owner, Owner: owner, Scopes: store.AllScopes}, nil
}

// ServerTLS is how the listeners speak TLS, nil if they do not. With a ClientCA
// a connection without a certificate of that authority is refused.
//
// Errors: NotFound, Denied and so on if a file cannot be read; Invalid if it is
// not what it should be; Precondition for a key that others can read.
func ServerTLS(t config.TLS) (*tls.Config, error) {
	if !t.Enabled() {
		return nil, nil
	}
	cert, err := readPEM("server.tls.cert", t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := safefs.ReadPrivate(t.Key, maxPEMBytes)
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "server.tls.key %s: %w", t.Key, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errdefs.New(errdefs.Invalid, "server.tls.cert %s, server.tls.key %s: %w", t.Cert, t.Key, err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.ClientCA == "" {
		return c, nil
	}
	authority, err := readPEM("server.tls.client_ca", t.ClientCA)
	if err != nil {
		return nil, err
	}
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(authority) {
		return nil, errdefs.New(errdefs.Invalid, "server.tls.client_ca %s: it holds no certificate", t.ClientCA)
	}
	return c, nil
}

// maxPEMBytes bounds a file of certificates; the host's whole bundle fits.
const maxPEMBytes = 4 << 20

func readPEM(key, path string) ([]byte, error) {
	text, err := safefs.ReadNamed(path, maxPEMBytes)
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%s %s: %w", key, path, err)
	}
	return text, nil
}
