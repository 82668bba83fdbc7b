package auth_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
)

var now = time.Unix(1_000_000, 0).UTC()

// world is a store with a default token and a token of alice's.
type world struct {
	store                     *store.Store
	standard, alices, expired string
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, "db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	w := world{store: s}
	if w.standard, err = auth.DefaultToken(filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	if w.alices, err = auth.Issue(t.Context(), s, auth.Grant{Name: "ci", Owner: "alice", Scopes: store.ScopeRead}, now); err != nil {
		t.Fatal(err)
	}
	w.expired, err = auth.Issue(t.Context(), s, auth.Grant{Name: "old", Scopes: store.AllScopes, ExpiresAt: now}, now.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w world) authenticator(t *testing.T, o auth.Options) *auth.Authenticator {
	t.Helper()
	o.DefaultToken, o.Now = w.standard, func() time.Time { return now }
	a, err := auth.New(w.store, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// shows is a connection with a verified certificate of a common name.
func shows(commonName string) *tls.ConnectionState {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: commonName}}
	return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
}

func TestIdentify(t *testing.T) {
	w := newWorld(t)
	unverified := shows("alice")
	unverified.VerifiedChains = nil
	standard := auth.Caller{Name: "default token", Scopes: store.AllScopes, Operator: true}
	alice := auth.Caller{Name: "token ci", Owner: "alice", Scopes: store.ScopeRead}
	anyone := auth.Caller{Name: "anyone", Scopes: store.AllScopes, Operator: true}
	one := func(header string) []string { return []string{header} }
	tests := []struct {
		name   string
		noAuth bool
		shown  auth.Credentials
		want   auth.Caller
		kind   errdefs.Kind // where want is the zero Caller
	}{
		{name: "the default token", shown: auth.Credentials{Authorization: one("Bearer " + w.standard)}, want: standard},
		{name: "a token of the store", shown: auth.Credentials{Authorization: one("Bearer " + w.alices)}, want: alice},
		{name: "the scheme in another case", shown: auth.Credentials{Authorization: one("bearer  " + w.alices + " ")}, want: alice},
		{name: "nothing", kind: errdefs.Unauthenticated},
		{name: "an empty header", shown: auth.Credentials{Authorization: one("")}, kind: errdefs.Unauthenticated},
		{name: "a token without its scheme", shown: auth.Credentials{Authorization: one(w.standard)}, kind: errdefs.Unauthenticated},
		{name: "another scheme", shown: auth.Credentials{Authorization: one("Basic " + w.standard)}, kind: errdefs.Unauthenticated},
		{name: "a token that nobody issued", shown: auth.Credentials{Authorization: one("Bearer afs_" + strings.Repeat("0", 64))}, kind: errdefs.Unauthenticated},
		{name: "half a token", shown: auth.Credentials{Authorization: one("Bearer " + w.standard[:40])}, kind: errdefs.Unauthenticated},
		{name: "the token in capitals", shown: auth.Credentials{Authorization: one("Bearer " + strings.ToUpper(w.standard))}, kind: errdefs.Unauthenticated},
		{name: "an expired token", shown: auth.Credentials{Authorization: one("Bearer " + w.expired)}, kind: errdefs.Unauthenticated},
		{name: "two tokens", shown: auth.Credentials{Authorization: []string{"Bearer " + w.standard, "Bearer " + w.standard}}, kind: errdefs.Unauthenticated},

		{name: "nothing, where nothing is needed", noAuth: true, want: anyone},
		{name: "a right token, where none is needed", noAuth: true, shown: auth.Credentials{Authorization: one("Bearer " + w.alices)}, want: alice},
		{name: "a wrong token, where none is needed", noAuth: true, shown: auth.Credentials{Authorization: one("Bearer x")}, kind: errdefs.Unauthenticated},

		{
			name: "a certificate", shown: auth.Credentials{TLS: shows("alice")},
			want: auth.Caller{Name: "certificate alice", Owner: "alice", Scopes: store.AllScopes},
		},
		{name: "a certificate that nobody verified", shown: auth.Credentials{TLS: unverified}, kind: errdefs.Unauthenticated},
		{name: "a certificate without a common name", shown: auth.Credentials{TLS: shows("")}, kind: errdefs.Unauthenticated},
		{name: "a certificate with a common name that cannot be printed", shown: auth.Credentials{TLS: shows("al\nice")}, kind: errdefs.Unauthenticated},
		{name: "a certificate with a common name that only looks right", shown: auth.Credentials{TLS: shows("alice ")}, kind: errdefs.Unauthenticated},
		{
			name:  "a certificate and its owner's token",
			shown: auth.Credentials{Authorization: one("Bearer " + w.alices), TLS: shows("alice")},
			want:  auth.Caller{Name: "token ci, certificate alice", Owner: "alice", Scopes: store.ScopeRead},
		},
		{
			name:  "a certificate and the default token",
			shown: auth.Credentials{Authorization: one("Bearer " + w.standard), TLS: shows("bob")},
			want:  auth.Caller{Name: "default token, certificate bob", Owner: "bob", Scopes: store.AllScopes},
		},
		{name: "a certificate and another owner's token", shown: auth.Credentials{Authorization: one("Bearer " + w.alices), TLS: shows("bob")}, kind: errdefs.Denied},
		{name: "a right certificate and a wrong token", shown: auth.Credentials{Authorization: one("Bearer x"), TLS: shows("alice")}, kind: errdefs.Unauthenticated},
		{name: "a nameless certificate and a token", shown: auth.Credentials{Authorization: one("Bearer " + w.standard), TLS: shows("")}, want: standard},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := w.authenticator(t, auth.Options{NoAuth: tt.noAuth, Addrs: []string{"127.0.0.1:9000", "[::1]:8080"}})
			got, err := a.Identify(t.Context(), tt.shown)
			if got != tt.want {
				t.Errorf("Identify = %+v, want %+v", got, tt.want)
			}
			if tt.want != (auth.Caller{}) {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantKind(t, err, tt.kind)
			for _, secret := range []string{w.standard, w.alices, w.expired} {
				if err != nil && strings.Contains(strings.ToLower(err.Error()), secret[len("afs_"):40]) {
					t.Errorf("the error repeats a token: %v", err)
				}
			}
		})
	}
}

func TestARevokedTokenIsUnknown(t *testing.T) {
	w := newWorld(t)
	a := w.authenticator(t, auth.Options{})
	if err := w.store.RemoveToken(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	_, err := a.Identify(t.Context(), auth.Credentials{Authorization: []string{"Bearer " + w.alices}})
	wantKind(t, err, errdefs.Unauthenticated)
}

// liar answers any hash with a token of another, or with an error.
type liar struct{ err error }

func (l liar) TokenByHash(context.Context, store.Hash) (store.Token, error) {
	return store.Token{Name: "x", Scopes: store.AllScopes}, l.err
}

func TestTheStoreIsNotTrustedBlindly(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		name string
		err  error
		want errdefs.Kind
	}{
		{"another token's row", nil, errdefs.Unauthenticated},
		{"a store that does not answer", errdefs.New(errdefs.Unavailable, "token: locked"), errdefs.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := auth.New(liar{tt.err}, auth.Options{DefaultToken: w.standard})
			if err != nil {
				t.Fatal(err)
			}
			got, err := a.Identify(t.Context(), auth.Credentials{Authorization: []string{"Bearer " + w.alices}})
			wantKind(t, err, tt.want)
			if got != (auth.Caller{}) {
				t.Errorf("Identify = %+v, want nobody", got)
			}
		})
	}
}

func TestNoAuthIsForLoopbackOnly(t *testing.T) {
	w := newWorld(t)
	for _, addrs := range [][]string{nil, {":9000"}, {"127.0.0.1:9000", "0.0.0.0:8080"}, {"example.org:1"}, {""}, {"unix:///run/a"}} {
		_, err := auth.New(w.store, auth.Options{DefaultToken: w.standard, NoAuth: true, Addrs: addrs})
		wantKind(t, err, errdefs.Precondition)
	}
	w.authenticator(t, auth.Options{Addrs: []string{":9000"}})
}

func TestNewNeedsADefaultToken(t *testing.T) {
	for _, token := range []string{"", "afs_", "secret"} {
		_, err := auth.New(newWorld(t).store, auth.Options{DefaultToken: token})
		wantKind(t, err, errdefs.Invalid)
	}
}

func TestIssue(t *testing.T) {
	w := newWorld(t)
	_, err := auth.Issue(t.Context(), w.store, auth.Grant{Name: "ci", Scopes: store.ScopeRead}, now)
	wantKind(t, err, errdefs.Exists)
	_, err = auth.Issue(t.Context(), w.store, auth.Grant{Name: "late", Scopes: store.ScopeRead, ExpiresAt: now}, now)
	wantKind(t, err, errdefs.Invalid)
	all, err := w.store.Tokens(t.Context())
	if err != nil || len(all) != 2 {
		t.Errorf("%d tokens, %v, want 2", len(all), err)
	}
	if w.alices == w.expired || len(w.alices) != len("afs_")+64 {
		t.Errorf("tokens are %q and %q", w.alices, w.expired)
	}
}

func FuzzAuthorization(f *testing.F) {
	a, err := auth.New(liar{}, auth.Options{DefaultToken: "afs_" + strings.Repeat("0", 64)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("Bearer afs_" + strings.Repeat("1", 64))
	f.Add("Bearer\tafs_")
	f.Fuzz(func(t *testing.T, header string) {
		got, err := a.Identify(t.Context(), auth.Credentials{Authorization: []string{header}})
		if strings.Contains(header, strings.Repeat("0", 64)) {
			return
		}
		wantKind(t, err, errdefs.Unauthenticated)
		if got != (auth.Caller{}) {
			t.Errorf("Identify(%q) = %+v", header, got)
		}
	})
}
