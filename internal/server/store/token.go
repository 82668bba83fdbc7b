package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/agentfense/agentfense/internal/lib/errdefs"
	"github.com/agentfense/agentfense/internal/lib/vpath"
)

// Hash is the SHA-256 of a token; the token itself is not stored.
type Hash [sha256.Size]byte

// Scopes is a set of permissions of a token.
type Scopes uint8

// The scopes.
const (
	ScopeRead   Scopes = 1 << iota // see codebases, files, sandboxes, changes, audit
	ScopeExec                      // start and stop sandboxes, run commands and sessions in them
	ScopeManage                    // create, change and delete codebases, sandboxes, policies
	ScopeApply                     // apply changes to a source, or discard them

	AllScopes = ScopeRead | ScopeExec | ScopeManage | ScopeApply
)

var scopeNames = []string{"read", "exec", "manage", "apply"} // by bit

// Has reports whether all of other are in s.
func (s Scopes) Has(other Scopes) bool { return s&other == other }

// String returns the names, separated by commas.
func (s Scopes) String() string {
	var names []string
	for i, name := range scopeNames {
		if s.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseScopes is the reverse of String. Errors: Invalid for an unknown scope, and for none.
func ParseScopes(text string) (Scopes, error) {
	var s Scopes
	for name := range strings.SplitSeq(text, ",") {
		i := slices.Index(scopeNames, name)
		if i < 0 {
			return 0, errdefs.New(errdefs.Invalid, "unknown scope %s (want %s)", vpath.Quote(name), strings.Join(scopeNames, ", "))
		}
		s |= 1 << i
	}
	return s, nil
}

// Token is the row of a token.
type Token struct {
	Hash      Hash
	Name      string // unique
	OwnerID   string // "": all owners
	Scopes    Scopes
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
}

const tokenColumns = "hash, name, owner_id, scopes, created_at, expires_at" //nolint:gosec // names of columns, no credentials

func scanToken(row scanner) (t Token, err error) {
	var created, expires int64
	var hash []byte
	var scopes string
	if err := row.Scan(&hash, &t.Name, &t.OwnerID, &scopes, &created, &expires); err != nil {
		return Token{}, err
	}
	if t.Scopes, err = ParseScopes(scopes); err != nil || len(hash) != len(t.Hash) {
		return Token{}, errdefs.New(errdefs.Internal, "token %s: damaged row", vpath.Quote(t.Name))
	}
	t.Hash = Hash(hash)
	t.CreatedAt, t.ExpiresAt = fromNanos(created), fromNanos(expires)
	return t, nil
}

// AddToken stores a token. Errors: Invalid without a name or scope; Exists if the name is in use.
func (s *Store) AddToken(ctx context.Context, t Token) error {
	switch {
	case t.Name == "":
		return errdefs.New(errdefs.Invalid, "create token: a name is required")
	case t.Scopes == 0 || !AllScopes.Has(t.Scopes):
		return errdefs.New(errdefs.Invalid, "create token %s: invalid scopes (want some of %s)", vpath.Escape(t.Name), AllScopes)
	}
	return s.write(ctx, "create token "+vpath.Escape(t.Name), powerCut, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens ("+tokenColumns+") VALUES (?, ?, ?, ?, ?, ?)",
			t.Hash[:], t.Name, t.OwnerID, t.Scopes.String(), nanos(t.CreatedAt), nanos(t.ExpiresAt))
		return err
	})
}

// TokenByHash returns the token with a hash, also an expired one. Errors: NotFound.
func (s *Store) TokenByHash(ctx context.Context, h Hash) (Token, error) {
	t, err := scanToken(s.reader.QueryRowContext(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE hash = ?", h[:]))
	return t, failed(ctx, "token", err)
}

// Tokens returns all tokens, by name.
func (s *Store) Tokens(ctx context.Context) ([]Token, error) {
	l := listing[Token]{scan: scanToken}
	found, err := l.rows(ctx, s.reader, "SELECT "+tokenColumns+" FROM tokens ORDER BY name")
	return found, failed(ctx, "list tokens", err)
}

// RemoveToken removes the token with a name. Errors: NotFound.
func (s *Store) RemoveToken(ctx context.Context, name string) error {
	return s.write(ctx, "revoke token "+vpath.Escape(name), powerCut, func(tx *sql.Tx) error {
		return change(ctx, tx, "DELETE FROM tokens WHERE name = ?", name)
	})
}
