package auth

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Tokens finds stored tokens.
type Tokens interface {
	// TokenByHash returns the token with the hash, also an expired one. Errors: NotFound.
	TokenByHash(ctx context.Context, h store.Hash) (store.Token, error)
}

// Authenticator identifies callers. It is immutable, and safe for concurrent use if its Tokens are.
type Authenticator struct {
	tokens      Tokens
	defaultHash store.Hash
	noAuth      bool
	now         func() time.Time
}

// Options of an Authenticator.
type Options struct {
	DefaultToken string // without an owner, with every scope
	// NoAuth gives callers without credentials every right. Credentials are still checked.
	NoAuth bool
	Addrs  []string         // where the server listens, host:port; needed for NoAuth
	Now    func() time.Time // nil: time.Now
}

// New returns an Authenticator.
// Errors: Invalid for a malformed DefaultToken; Precondition for NoAuth unless all of Addrs are
// loopback addresses.
func New(tokens Tokens, o Options) (*Authenticator, error) {
	if !isToken(o.DefaultToken) {
		return nil, errdefs.New(errdefs.Invalid, "default token: malformed")
	}
	if o.NoAuth {
		if err := checkLoopback(o.Addrs); err != nil {
			return nil, err
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Authenticator{tokens: tokens, defaultHash: hashOf(o.DefaultToken), noAuth: o.NoAuth, now: o.Now}, nil
}

func checkLoopback(addrs []string) error {
	if len(addrs) == 0 {
		return errdefs.New(errdefs.Precondition, "--no-auth: the addresses of the server are unknown")
	}
	for _, addr := range addrs {
		if strings.HasPrefix(addr, "unix:") {
			// A sandbox of the same user may show the socket's directory to its commands.
			return errdefs.New(errdefs.Precondition, "--no-auth: %s is a unix socket, which needs a token: clients of this user find the token by themselves", addr)
		}
		if !config.IsLoopback(addr) {
			return errdefs.New(errdefs.Precondition, "--no-auth: %s can be reached from other hosts: listen on 127.0.0.1, or leave --no-auth out", addr)
		}
	}
	return nil
}

// Credentials are those of a request.
type Credentials struct {
	Authorization []string             // the values of the header, or of the metadata
	TLS           *tls.ConnectionState // nil without TLS
}

// Identify returns the caller with these credentials. Without a token and a certificate there is a
// caller only if NoAuth is set. A caller with both has the token's scopes, and the owner that one
// of them names.
//
// Errors: Unauthenticated for missing or invalid credentials; Denied for a token and a certificate
// of two owners; those of Tokens.
func (a *Authenticator) Identify(ctx context.Context, c Credentials) (Caller, error) {
	byCertificate, err := certificateCaller(c.TLS)
	if err != nil {
		return Caller{}, err
	}
	if len(c.Authorization) == 0 {
		switch {
		case byCertificate.Scopes != 0:
			return byCertificate, nil
		case a.noAuth:
			return Caller{Name: "anyone", Scopes: store.AllScopes, Operator: true}, nil
		}
		return Caller{}, errdefs.New(errdefs.Unauthenticated, `no credentials: send "authorization: Bearer TOKEN"`)
	}
	token, err := bearer(c.Authorization)
	if err != nil {
		return Caller{}, err
	}
	caller, err := a.tokenCaller(ctx, token)
	if err != nil || byCertificate.Scopes == 0 {
		return caller, err
	}
	if err := caller.ActFor(byCertificate.Owner); err != nil {
		return Caller{}, errdefs.New(errdefs.Denied, "the token and the certificate belong to different owners")
	}
	caller.Name += ", " + byCertificate.Name
	caller.Owner, caller.Operator = byCertificate.Owner, false
	return caller, nil
}

// bearer returns the token of an authorization header (RFC 6750, section 2.1).
func bearer(values []string) (string, error) {
	if len(values) > 1 {
		return "", errdefs.New(errdefs.Unauthenticated, "authorization: given %d times", len(values))
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || !isToken(token) {
		return "", errdefs.New(errdefs.Unauthenticated, `authorization: want "Bearer %s…"`, tokenPrefix)
	}
	return token, nil
}

// tokenCaller finds the token by its hash. The time of the search depends only on the hash, from
// which nobody can compute the token. The comparisons take constant time.
func (a *Authenticator) tokenCaller(ctx context.Context, token string) (Caller, error) {
	hash := hashOf(token)
	if sameHash(hash, a.defaultHash) {
		return Caller{Name: "default token", Scopes: store.AllScopes, Operator: true}, nil
	}
	t, err := a.tokens.TokenByHash(ctx, hash)
	switch {
	case errdefs.Is(err, errdefs.NotFound), err == nil && !sameHash(hash, t.Hash):
		return Caller{}, errdefs.New(errdefs.Unauthenticated, "unknown token")
	case err != nil:
		return Caller{}, err
	case !t.ExpiresAt.IsZero() && !a.now().Before(t.ExpiresAt):
		return Caller{}, errdefs.New(errdefs.Unauthenticated, "the token expired at %s", t.ExpiresAt.Format(time.RFC3339))
	}
	return Caller{Name: "token " + t.Name, Owner: t.OwnerID, Scopes: t.Scopes}, nil
}

func sameHash(a, b store.Hash) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }
