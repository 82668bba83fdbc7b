// Package tokenstore keeps the tokens of this host's server, in the database of the
// server, which may be running.
package tokenstore

import (
	"context"

	"github.com/agentfense/agentfense/internal/cli/backend"
	"github.com/agentfense/agentfense/internal/sandbox/config"
	"github.com/agentfense/agentfense/internal/server/auth"
	"github.com/agentfense/agentfense/internal/server/store"
)

// Tokens are those in the database of a server, which may be running: it takes
// notice at once.
type Tokens struct {
	store *store.Store
}

// Open opens the database that the configuration names, and makes it if
// there is none. Close it after.
func Open(ctx context.Context, c *config.Config) (backend.Tokens, error) {
	s, err := store.Open(ctx, c.Storage.DBPath, store.Options{})
	if err != nil {
		return nil, err
	}
	return &Tokens{store: s}, nil
}

// Close gives the database back.
func (t *Tokens) Close() error { return t.store.Close() }

// Issue makes a token.
func (t *Tokens) Issue(ctx context.Context, token backend.Token) (string, error) {
	scopes, err := store.ParseScopes(token.Scopes)
	if err != nil {
		return "", err
	}
	return auth.Issue(ctx, t.store, auth.Grant{
		Name: token.Name, Owner: token.OwnerID, Scopes: scopes, ExpiresAt: token.ExpiresAt,
	}, token.CreatedAt)
}

// List lists the tokens by name.
func (t *Tokens) List(ctx context.Context) ([]backend.Token, error) {
	stored, err := t.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	tokens := make([]backend.Token, len(stored))
	for i, s := range stored {
		tokens[i] = backend.Token{
			Name: s.Name, OwnerID: s.OwnerID, Scopes: s.Scopes.String(), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt,
		}
	}
	return tokens, nil
}

// Revoke forgets a token.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	return t.store.RemoveToken(ctx, name)
}
