package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/server/store"
)

// tokenPrefix lets secret scanners find tokens.
const tokenPrefix = "afs_"

const secretBytes = 32

// newToken returns a random token: afs_ and 64 hexadecimal digits.
func newToken() string {
	var secret [secretBytes]byte
	rand.Read(secret[:])
	return tokenPrefix + hex.EncodeToString(secret[:])
}

// isToken checks only the form.
func isToken(s string) bool {
	digits, ok := strings.CutPrefix(s, tokenPrefix)
	return ok && len(digits) == 2*secretBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

func hashOf(token string) store.Hash { return sha256.Sum256([]byte(token)) }

// Grant is what a new token allows.
type Grant struct {
	Name      string
	Owner     string // "": all owners
	Scopes    store.Scopes
	ExpiresAt time.Time // zero: never
}

// Issue creates a token and stores its hash. The token itself is not stored.
//
// Errors: Invalid without a name or scope, or if it would expire before now; Exists if the name is
// in use; those of the store.
func Issue(ctx context.Context, to interface {
	AddToken(context.Context, store.Token) error
}, g Grant, now time.Time,
) (token string, err error) {
	if !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(now) {
		return "", errdefs.New(errdefs.Invalid, "create token: the expiry %s is in the past", g.ExpiresAt.UTC().Format(time.RFC3339))
	}
	token = newToken()
	err = to.AddToken(ctx, store.Token{
		Hash: hashOf(token), Name: g.Name, OwnerID: g.Owner, Scopes: g.Scopes, CreatedAt: now, ExpiresAt: g.ExpiresAt,
	})
	if err != nil {
		return "", err
	}
	return token, nil
}
