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

// tokenPrefix lets scanners for secrets find tokens.
const tokenPrefix = "afs_"

const secretBytes = 32

// newToken returns a token that nobody can guess: afs_ and 64 hex digits.
func newToken() string {
	var secret [secretBytes]byte
	rand.Read(secret[:])
	return tokenPrefix + hex.EncodeToString(secret[:])
}

// isToken checks the form alone.
func isToken(s string) bool {
	digits, ok := strings.CutPrefix(s, tokenPrefix)
	return ok && len(digits) == 2*secretBytes && strings.Trim(digits, "0123456789abcdef") == ""
}

func hashOf(token string) store.Hash { return sha256.Sum256([]byte(token)) }

// Grant is what a new token is for.
type Grant struct {
	Name      string
	Owner     string // "" reaches everybody's things
	Scopes    store.Scopes
	ExpiresAt time.Time // zero: never
}

// Issue makes a token and stores its hash. The token is returned this once and
// can be found nowhere after.
//
// Errors: Invalid without a name or scope, or if it would expire before now;
// Exists if there is a token of that name; as the store has it.
func Issue(ctx context.Context, to interface {
	AddToken(context.Context, store.Token) error
}, g Grant, now time.Time,
) (token string, err error) {
	if !g.ExpiresAt.IsZero() && !g.ExpiresAt.After(now) {
		return "", errdefs.New(errdefs.Invalid, "create token: it would have expired at %s", g.ExpiresAt.UTC().Format(time.RFC3339))
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
