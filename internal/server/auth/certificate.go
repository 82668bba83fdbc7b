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

// certificateCaller is the owner that the client's certificate names, with every scope. Without a
// verified certificate, or with an empty common name, it is the zero Caller.
func certificateCaller(state *tls.ConnectionState) (Caller, error) {
	if state == nil || len(state.VerifiedChains) == 0 {
		return Caller{}, nil
	}
	owner := state.VerifiedChains[0][0].Subject.CommonName
	switch {
	case owner == "":
		return Caller{}, nil
	case owner != strings.TrimSpace(owner) || strings.ContainsFunc(owner, func(r rune) bool { return !unicode.IsPrint(r) }):
		return Caller{}, errdefs.New(errdefs.Unauthenticated, "the certificate's common name is not a valid owner: it begins or ends with a space, or contains a character that cannot be printed")
	}
	return Caller{Name: "certificate " + owner, Owner: owner, Scopes: store.AllScopes}, nil
}

// ServerTLS returns the TLS settings of the listeners, nil without TLS. With a ClientCA,
// connections without a certificate of that authority are refused.
//
// Errors: NotFound, Denied and so on if a file cannot be read; Invalid for its content;
// Precondition for a key that others can read.
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
		return nil, errdefs.New(errdefs.Invalid, "server.tls.client_ca %s: no certificate found", t.ClientCA)
	}
	return c, nil
}

// maxPEMBytes limits a file of certificates; the host's whole bundle fits.
const maxPEMBytes = 4 << 20

func readPEM(key, path string) ([]byte, error) {
	text, err := safefs.ReadNamed(path, maxPEMBytes)
	if err != nil {
		return nil, errdefs.New(safefs.Kind(err), "%s %s: %w", key, path, err)
	}
	return text, nil
}
