package daemon

import (
	"context"

	"github.com/agentfense/agentfense/internal/auth"
	"github.com/agentfense/agentfense/internal/config"
	"github.com/agentfense/agentfense/internal/control"
	"github.com/agentfense/agentfense/internal/store"
)

// Tokens are those in the database of a server, which may be running: it takes
// notice at once.
type Tokens struct {
	store *store.Store
}

// OpenTokens opens the database that the configuration names, and makes it if
// there is none. Close it after.
func OpenTokens(ctx context.Context, c *config.Config) (control.Tokens, error) {
	s, err := store.Open(ctx, c.Storage.DBPath, store.Options{})
	if err != nil {
		return nil, err
	}
	return &Tokens{store: s}, nil
}

// Close gives the database back.
func (t *Tokens) Close() error { return t.store.Close() }

// Issue makes a token.
func (t *Tokens) Issue(ctx context.Context, token control.Token) (string, error) {
	scopes, err := store.ParseScopes(token.Scopes)
	if err != nil {
		return "", err
	}
	return auth.Issue(ctx, t.store, auth.Grant{
		Name: token.Name, Owner: token.OwnerID, Scopes: scopes, ExpiresAt: token.ExpiresAt,
	}, token.CreatedAt)
}

// List lists the tokens by name.
func (t *Tokens) List(ctx context.Context) ([]control.Token, error) {
	stored, err := t.store.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	tokens := make([]control.Token, len(stored))
	for i, s := range stored {
		tokens[i] = control.Token{
			Name: s.Name, OwnerID: s.OwnerID, Scopes: s.Scopes.String(), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt,
		}
	}
	return tokens, nil
}

// Revoke forgets a token.
func (t *Tokens) Revoke(ctx context.Context, name string) error {
	return t.store.RemoveToken(ctx, name)
}

// ReadToken is auth.ReadToken.
func ReadToken(path string) (string, error) { return auth.ReadToken(path) }
